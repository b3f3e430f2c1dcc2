"""Interval and null value of the failure AUROC, from the cells of confidence.

AUROC: DeLong's variance of the placement values; with fewer than thirty rows on a side a score interval with Hanley and
McNeil's variance (Newcombe 2006, method 5), since DeLong's is 0 where the sides do not overlap.
Null: what the same confidences give when each row is right with the probability that it claims.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.ranking import area_under_risk_coverage, auroc_of
from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]
_FEW = 30  # rows of a side


def ranking_of_cells(s: Statistics) -> tuple[float, float]:
    """AURC and AUROC where rows are not kept: rows of one cell count as ties."""
    position, right, wrong, _ = cells_of(s)
    total = right + wrong
    return area_under_risk_coverage(position, wrong / total, total), auroc_of(position, position, right, wrong)


def cells_of(s: Statistics) -> tuple[Vector, Vector, Vector, Vector]:
    """Of each cell that holds rows, from low to high: its place, weight of right and of wrong rows, mean confidence."""
    cells = s.cells()
    full = cells.weight > 0
    right = np.minimum(cells.correct_sum[full], cells.weight[full])
    return np.flatnonzero(full).astype(np.float64), right, cells.weight[full] - right, cells.confidence[full]


def measure_auroc(s: Statistics, value: float) -> Measured:
    position, right, wrong, confidence = cells_of(s)
    total = right + wrong
    null = auroc_of(position, position, total * confidence, total * (1 - confidence))
    if not np.isfinite(value):
        return Measured(value, None, None, null if np.isfinite(null) else None)
    scale = s.effective_rows / total.sum()
    return Measured(value, *area_interval(right, wrong, value, scale=scale), null)


def area_interval(right: Vector, wrong: Vector, value: float, *, scale: float = 1.0) -> tuple[float, float]:
    """Of an area under a ROC curve; right, wrong: weight of each side in cells from the lowest score to the highest.

    scale: effective rows for a unit of weight.
    """
    m, n = right.sum(), wrong.sum()
    # Share of the other side that each cell beats, ties half.
    beats = (np.cumsum(wrong) - wrong / 2) / n
    beaten = 1 - (np.cumsum(right) - right / 2) / m
    spread_right = float(right @ (beats - value) ** 2 / m) / max(m * scale - 1, 1)
    spread_wrong = float(wrong @ (beaten - value) ** 2 / n) / max(n * scale - 1, 1)
    half = Z95 * float(np.sqrt(spread_right + spread_wrong))
    if min(m, n) * scale < _FEW:
        return score_interval(value, m * scale, n * scale)
    return max(value - half, 0.0), min(value + half, 1.0)


def score_interval(value: float, right: float, wrong: float) -> tuple[float, float]:
    """The areas a for which |value - a| <= 1.96 sqrt(V(a)).

    V(a) = a (1 - a) (1 + (N - 1) ((1 - a) / (2 - a) + a / (1 + a))) / (right wrong), N = (right + wrong) / 2.
    """
    area = np.linspace(0.0, 1.0, 2001)
    each = (right + wrong) / 2 - 1
    variance = area * (1 - area) * (1 + each * ((1 - area) / (2 - area) + area / (1 + area))) / (right * wrong)
    inside = area[np.abs(area - value) <= Z95 * np.sqrt(variance) + 1e-12]
    return float(min(inside.min(initial=1.0), value)), float(max(inside.max(initial=0.0), value))
