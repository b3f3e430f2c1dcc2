"""Metrics of predicted probabilities, each `metric(probs, labels, *, bins=15, weights=None)`."""

from __future__ import annotations

from calibrant.calibration.metrics.measures import (
    BrierParts,
    OverUnder,
    accuracy,
    adaptive_ece,
    aurc,
    auroc,
    balanced_accuracy,
    brier,
    brier_decomposition,
    classwise_ece,
    debiased_ece,
    ece,
    macro_f1,
    mce,
    nll,
    over_under_ece,
    rms_calibration_error,
    selective_accuracy,
    smooth_ece,
    top_k_accuracy,
    unweighted_ece,
)
from calibrant.calibration.metrics.ranking import OodScores, ood_detection

__all__ = [
    "BrierParts", "OodScores", "OverUnder", "accuracy", "adaptive_ece", "aurc", "auroc", "balanced_accuracy",
    "brier", "brier_decomposition", "classwise_ece", "debiased_ece", "ece", "macro_f1", "mce", "nll",
    "ood_detection", "over_under_ece", "rms_calibration_error", "selective_accuracy", "smooth_ece", "top_k_accuracy",
    "unweighted_ece",
]  # fmt: skip
