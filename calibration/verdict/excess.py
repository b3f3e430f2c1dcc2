"""How much more is claimed than is right, on average: the stronger test for one-sided errors, and their sign."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.statistics.statistics import Statistics


@dataclass(frozen=True)
class Excess:
    """Mean claim minus share right; `sd`: its standard deviation if the claims were right."""

    gap: float
    sd: float

    @property
    def z(self) -> float:
        return self.gap / self.sd if self.sd > 0 else math.copysign(math.inf, self.gap) if self.gap else 0.0

    @property
    def p(self) -> float:
        """Two-sided."""
        return math.erfc(abs(self.z) / math.sqrt(2))

    @property
    def chance(self) -> float:
        """What 95 of 100 calibrated models stay within."""
        return Z95 * self.sd

    @classmethod
    def of(cls, s: Statistics) -> Excess:
        """z = sum w (c - r) / sqrt(sum w^2 c (1 - c)), c confidence, r 1 where right, w the weight of the true class.

        Differs: c^2 is summed over cells as if a cell were a point.
        """
        cells = s.cells()
        claimed, right = float(cells.confidence_sum.sum()), float(cells.correct_sum.sum())
        if s.class_weights is None:
            variance = claimed - float((cells.weight * cells.confidence**2).sum())
        else:
            n = (s.right.count + s.wrong_by_true.count).astype(np.float64)
            total = s.right.total + s.wrong_by_true.total
            squares = np.divide(total**2, n, out=np.zeros_like(n), where=n > 0)
            variance = float(s.weights**2 @ (total - squares).sum(axis=1))
        weight = float(cells.weight.sum())
        return cls((claimed - right) / weight, math.sqrt(max(variance, 0.0)) / weight)

    @classmethod
    def of_rows(cls, confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> Excess:
        variance = float((confidence * (1 - confidence)).sum())
        return cls(float((confidence - correct).mean()), math.sqrt(variance) / len(confidence))
