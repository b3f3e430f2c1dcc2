"""Bins as an experiment: what is known of each, and the error that gaps come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.statistics.bins import Bins

Vector = NDArray[np.float64]
Norm = Literal["sum", "over", "under", "rms", "max"]


@dataclass(frozen=True)
class GapSample:
    """Bins as an experiment: share, confidence, gap, effective rows, and variance of the confidence in each bin."""

    share: Vector
    confidence: Vector
    gap: Vector
    rows: Vector
    spread: Vector

    @classmethod
    def of(cls, bins: Bins, weight_squares: Vector | None = None, spread: Vector | None = None) -> GapSample:
        """`weight_squares`: sum of squared weights of each bin; `spread`: variance of the confidences in each bin."""
        full = bins.weight > 0
        squares = bins.weight if weight_squares is None else weight_squares
        spread_of = np.zeros(int(full.sum())) if spread is None else np.maximum(spread[full], 0.0)
        return cls(
            bins.share[full], bins.confidence[full], bins.gap[full],
            np.maximum(bins.weight[full] ** 2 / squares[full], 1.0), spread_of,
        )  # fmt: skip

    def noise_variance(self, true_gap: Vector) -> Vector:
        """Variance of an observed gap when the true one is `true_gap`: (a (1 - a) - spread) / n."""
        accuracy = np.clip(self.confidence - true_gap, 0.0, 1.0)
        one_row = np.maximum(accuracy * (1 - accuracy) - self.spread, 1e-12)
        return one_row / self.rows


def gap_error(share: Vector, gap: Vector, norm: Norm) -> Any:
    """The error that gaps (.., bins) come to."""
    if norm == "sum":
        return np.abs(gap) @ share
    if norm == "over":
        return np.maximum(gap, 0.0) @ share
    if norm == "under":
        return np.maximum(-gap, 0.0) @ share
    if norm == "rms":
        return np.sqrt(np.square(gap) @ share)
    return np.abs(gap).max(axis=-1)


def contribution(gap: Vector, norm: Norm) -> Vector:
    if norm == "over":
        return np.maximum(gap, 0.0)
    if norm == "under":
        return np.maximum(-gap, 0.0)
    return gap**2 if norm == "rms" else np.abs(gap)
