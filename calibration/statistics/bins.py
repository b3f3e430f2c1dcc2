"""Rows sorted into bins of confidence, and what a bin holds; every binned metric is a function of `Bins`.

Equal width: bin j of b is (j/b, (j+1)/b], a confidence of exactly 0 goes to the first. The edges are rounded to the
precision of the confidences, so a float32 value that stands for 2/15 lies in the second bin of fifteen, as in float64.
Equal mass: rows in order of confidence (ties in order of rows), cut by numpy.array_split; with weights that differ,
into parts of equal weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.inputs import Weights
from calibrant.errors import ConfigError

Confidences = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Bins:
    """Per bin: rows, their weight, and the weighted sums of confidence and of correctness (all zero where empty)."""

    rows: NDArray[np.int64]
    weight: NDArray[np.float64]
    confidence_sum: NDArray[np.float64]
    correct_sum: NDArray[np.float64]

    @property
    def share(self) -> NDArray[np.float64]:
        share: NDArray[np.float64] = self.weight / self.weight.sum()
        return share

    @property
    def confidence(self) -> NDArray[np.float64]:
        """Mean confidence of each bin; 0 where empty."""
        return np.divide(self.confidence_sum, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        return np.divide(self.correct_sum, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0)

    @property
    def gap(self) -> NDArray[np.float64]:
        """Mean confidence minus accuracy: positive where over-confident."""
        difference = self.confidence_sum - self.correct_sum
        return np.divide(difference, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0)

    @property
    def total_gap(self) -> NDArray[np.float64]:
        """share * gap without the detour over the mean."""
        gap: NDArray[np.float64] = (self.confidence_sum - self.correct_sum) / self.weight.sum()
        return gap


def check_bins(bins: int) -> int:
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or not 1 <= bins <= 1_000_000:
        raise ConfigError(f"bins is {bins!r}, expected a whole number from 1 to 1,000,000")
    return int(bins)


def equal_width_edges(bins: int, dtype: Any = np.float64) -> NDArray[Any]:
    """0, 1/b, ..., 1, each the nearest number of the precision."""
    return (np.arange(bins + 1) / bins).astype(dtype)


def equal_width_index(confidence: Confidences, bins: int) -> NDArray[np.int64]:
    edges = equal_width_edges(bins, confidence.dtype)
    return np.searchsorted(edges[1:-1], confidence, side="left").astype(np.int64)


def sums(index: NDArray[np.integer[Any]], values: NDArray[Any], bins: int) -> NDArray[np.float64]:
    """Sum of the values of each bin."""
    return np.bincount(index, values, bins).astype(np.float64, copy=False)


def gather(
    index: NDArray[np.integer[Any]], confidence: Confidences, correct: NDArray[Any], weights: Weights | None, bins: int
) -> Bins:
    """Sums per bin; `correct` may be booleans or shares."""
    rows = np.bincount(index, minlength=bins)
    confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    if weights is None:
        weight = rows.astype(np.float64)
        return Bins(rows, weight, sums(index, confidence, bins), sums(index, correct, bins))
    return Bins(
        rows,
        sums(index, weights, bins),
        sums(index, confidence * weights, bins),
        sums(index, correct * weights, bins),
    )


def equal_width(confidence: Confidences, correct: NDArray[Any], bins: int, weights: Weights | None = None) -> Bins:
    bins = check_bins(bins)
    return gather(equal_width_index(confidence, bins), confidence, correct, weights, bins)


def equal_mass(confidence: Confidences, correct: NDArray[Any], bins: int, weights: Weights | None = None) -> Bins:
    bins = check_bins(bins)
    return gather(equal_mass_index(confidence, bins, weights), confidence, correct, weights, bins)


def equal_mass_index(confidence: Confidences, bins: int, weights: Weights | None = None) -> NDArray[np.int64]:
    """The bin of each row."""
    order = np.argsort(confidence, kind="stable")
    n = len(order)
    index = np.empty(n, np.int64)
    if weights is None or float(weights.min()) == float(weights.max()):
        large, extra = divmod(n, bins)  # numpy.array_split: the first `extra` parts hold one row more
        sizes = np.full(bins, large, np.int64)
        sizes[:extra] += 1
        index[order] = np.repeat(np.arange(bins), sizes)
    else:
        sorted_weights = weights[order]
        middle = np.cumsum(sorted_weights) - sorted_weights / 2
        index[order] = np.minimum((middle * (bins / sorted_weights.sum())).astype(np.int64), bins - 1)
    return index
