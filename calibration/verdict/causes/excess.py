"""How much more is claimed than is right, on average: the stronger test for one-sided errors, and their sign."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.verdict.causes.significance import two_sided

if TYPE_CHECKING:
    from calibrant.calibration.statistics.bins import Bins
    from calibrant.calibration.statistics.statistics import Statistics


@dataclass(frozen=True)
class Excess:
    """Mean claim minus share right; `sd`: its standard deviation if the claims were right; `p`: two-sided."""

    gap: float
    sd: float
    p: float
    rows: int

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
        if s.class_weights is None:
            return cls.of_cells(cells)
        claimed, right = float(cells.confidence_sum.sum()), float(cells.correct_sum.sum())
        n = (s.right.count + s.wrong_by_true.count).astype(np.float64)
        total = s.right.total + s.wrong_by_true.total
        squares = np.divide(total**2, n, out=np.zeros_like(n), where=n > 0)
        variance = float(s.weights**2 @ (total - squares).sum(axis=1))
        z = (claimed - right) / math.sqrt(variance) if variance > 0 else math.inf * (claimed != right)
        weight = float(cells.weight.sum())
        p = math.erfc(abs(z) / math.sqrt(2))
        return cls((claimed - right) / weight, math.sqrt(max(variance, 0.0)) / weight, p, s.rows)

    @classmethod
    def of_cells(cls, cells: Bins) -> Excess:
        claimed, right = float(cells.confidence_sum.sum()), float(cells.correct_sum.sum())
        squares = float((cells.weight * cells.confidence**2).sum())
        return cls._counted(claimed, right, claimed - squares, int(cells.rows.sum()))

    @classmethod
    def of_rows(cls, confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> Excess:
        claimed, squares = float(confidence.sum()), float((confidence**2).sum())
        return cls._counted(claimed, float(correct.sum()), claimed - squares, len(confidence))

    @classmethod
    def _counted(cls, claimed: float, right: float, variance: float, rows: int) -> Excess:
        variance = variance if variance > 1e-9 * rows else 0.0
        p = two_sided(claimed, right, variance, rows)
        return cls((claimed - right) / rows, math.sqrt(variance) / rows, p, rows)
