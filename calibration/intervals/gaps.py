"""Bins as an experiment: what is known of each, and the error that gaps come to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.statistics.bins import Bins

Vector = NDArray[np.float64]
Norm = Literal["sum", "over", "under", "rms", "max"]
_HEAVY = 8.0


@dataclass(frozen=True)
class GapSample:
    """Bins as an experiment: share, confidence, gap, effective rows, and variance of the confidence in each bin.

    `widening`: of what is drawn, where rows weigh differently: sqrt(1 + 8 (1 / effective rows - 1 / rows)). A few heavy
    rows, right or wrong by chance, say less of their own scatter than as many equal ones.
    """

    share: Vector
    confidence: Vector
    gap: Vector
    rows: Vector
    spread: Vector
    widening: float = 1.0

    @classmethod
    def of(cls, bins: Bins, weight_squares: Vector | None = None, spread: Vector | None = None) -> GapSample:
        """`weight_squares`: sum of squared weights of each bin; `spread`: variance of the confidences in each bin."""
        full = bins.weight > 0
        squares = bins.weight if weight_squares is None else weight_squares
        lost = max(float(squares.sum() / max(bins.weight.sum() ** 2, 1e-300)) - 1.0 / max(int(bins.rows.sum()), 1), 0.0)
        spread_of = np.zeros(int(full.sum())) if spread is None else np.maximum(spread[full], 0.0)
        return cls(
            bins.share[full],
            np.clip(bins.confidence[full], 0.0, 1.0),
            bins.gap[full],
            np.maximum(bins.weight[full] ** 2 / squares[full], 1.0),
            spread_of,
            float(np.sqrt(1.0 + _HEAVY * lost)),
        )

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows as a whole number, for draws of counts."""
        return np.maximum(np.rint(self.rows), 1.0).astype(np.int64)

    @property
    def accuracy(self) -> Vector:
        return np.clip(self.confidence - self.gap, 0.0, 1.0)

    @property
    def effective_rows(self) -> float:
        return float(self.share.sum() ** 2 / (self.share**2 / self.rows).sum())

    def only(self, chosen: NDArray[np.bool_]) -> GapSample:
        """Some of the bins; their shares stay those of all rows."""
        return replace(
            self,
            share=self.share[chosen],
            confidence=self.confidence[chosen],
            gap=self.gap[chosen],
            rows=self.rows[chosen],
            spread=self.spread[chosen],
        )

    def far(self, norm: Norm) -> Vector:
        """The largest gap of each bin that these confidences allow: accuracy 0 or 1."""
        p = self.confidence
        if norm in ("over", "under"):
            return p if norm == "over" else p - 1.0
        return np.where(p >= 0.5, p, p - 1.0)

    def most(self, norm: Norm) -> float:
        """The largest error that is possible with these confidences."""
        return float(gap_error(self.share, self.far(norm), norm))


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
    """What each bin adds to the error, before its share."""
    if norm == "over":
        return np.maximum(gap, 0.0)
    if norm == "under":
        return np.maximum(-gap, 0.0)
    return gap**2 if norm == "rms" else np.abs(gap)
