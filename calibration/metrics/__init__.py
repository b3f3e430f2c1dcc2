"""Metrics of predicted probabilities, each `metric(probs, labels, *, bins=15, weights=None)`.

Symbols: p (N, C) probabilities; y labels; w row weights (None: equal); predicted class argmax p, the first of equals;
confidence c = max p; correct r = [argmax p = y]. Sums run in float64 whatever the precision of p. Results are shares
(0.05 is 5 %), not percent. With weights every mean over rows is a weighted mean.

Refused with a DataError: NaN, negative values, rows that do not sum to one (logits, usually), labels out of range, no
rows. Defined: confidence exactly 1 lies in the last bin, 0 in the first; empty bins carry no weight; classes that do
not occur are left out of means over classes (they count in classwise ECE, where p alone defines the error); one class
and one row are fine.
"""

from __future__ import annotations

from calibrant.calibration.metrics.binned_errors import (
    OverUnder,
    adaptive_ece,
    classwise_ece,
    debiased_ece,
    ece,
    mce,
    over_under_ece,
    rms_calibration_error,
    unweighted_ece,
)
from calibrant.calibration.metrics.correctness import accuracy, balanced_accuracy, macro_f1, top_k_accuracy
from calibrant.calibration.metrics.ood import OodScores, ood_detection
from calibrant.calibration.metrics.proper_scores import BrierParts, brier, brier_decomposition, nll
from calibrant.calibration.metrics.ranking import aurc, auroc, selective_accuracy
from calibrant.calibration.metrics.smooth import smooth_ece

__all__ = [
    "BrierParts", "OodScores", "OverUnder", "accuracy", "adaptive_ece", "aurc", "auroc", "balanced_accuracy",
    "brier", "brier_decomposition", "classwise_ece", "debiased_ece", "ece", "macro_f1", "mce", "nll",
    "ood_detection", "over_under_ece", "rms_calibration_error", "selective_accuracy", "smooth_ece", "top_k_accuracy",
    "unweighted_ece",
]  # fmt: skip
