"""The accuracy to expect of served rows before their labels are known.

If the confidences c_i are calibrated, correctness is Bernoulli(c_i): the accuracy of n rows is expected to be mean(c)
with variance sum c (1 - c) / n^2, plus that of the gap between accuracy and confidence on held-out data where the file
knows it (metrics of the card).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.intervals.means import Z95

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedAccuracy:
    """With its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def expected_accuracy(confidence: Array, *, gap: float = 0.0, gap_variance: float = 0.0) -> ExpectedAccuracy:
    """Accuracy to expect of rows with these confidences, 95 %; `gap` is accuracy - confidence on held-out data."""
    n = len(confidence)
    mean = float(np.clip(confidence.mean() + gap, 0.0, 1.0))
    variance = float((confidence * (1 - confidence)).sum()) / n**2 + gap_variance
    half = Z95 * math.sqrt(variance)
    return ExpectedAccuracy(mean, max(0.0, mean - half), min(1.0, mean + half))


def held_out_gap(card: ModelCard | None) -> tuple[float, float]:
    """Accuracy - mean confidence on the rows of the calibrator's cross-fitted check, and the variance of that.

    The binned gaps add up to it: under-confidence - over-confidence (metrics of calibrate: under_ece, over_ece). Zeros
    where the file records no such check.
    """
    try:
        after = card.metrics.get("after", card.metrics)  # type: ignore[union-attr]
        rows = float((card.calibrator or {})["fitted_on"]["rows"])  # type: ignore[union-attr]
        accuracy = float(after["accuracy"]["value"])
        gap = float(after["under_ece"]["value"]) - float(after["over_ece"]["value"])
        return gap, max(1e-12, accuracy * (1 - accuracy) / rows)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0.0, 0.0
