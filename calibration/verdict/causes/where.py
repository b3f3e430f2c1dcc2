"""At which confidences does the error lie? Said where it is in one place, such as among the surest rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from calibrant.calibration.statistics.bins import equal_width_edges
from calibrant.calibration.verdict.causes.significance import two_sided

if TYPE_CHECKING:
    from calibrant.calibration.verdict.case import Case

_P, _OF_ERROR, _OF_ROWS = 0.01, 0.75, 0.4  # most of the error, among few of the rows


@dataclass(frozen=True)
class Range:
    """Rows whose confidence lies between two edges."""

    low: float
    high: float
    rows: int
    claimed: float  # their mean confidence
    right: float  # share of them

    @property
    def words(self) -> str:
        low, high, claimed, right = (f"{100 * v:.0f}" for v in (self.low, self.high, self.claimed, self.right))
        where = f"claims more than {low} %" if self.high == 1 else f"claims {low} to {high} %"
        return (
            f"Most of it lies where it {where}: {claimed} % on average, and {right} % are right ({self.rows:,} rows)."
        )

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def worst_range(case: Case) -> Range | None:
    """The fewest neighbouring bins that hold three quarters of the excess, where they hold at most .4 of the rows.

    The excess is the mean claim minus the share right. The gap of the bins must be clear by itself (p < .01, Bonferroni
    over all ranges).
    """
    bins = case.statistics.bins(case.evaluation.bins)
    gap, share = bins.total_gap, bins.share
    total = float(gap.sum())
    if not total:
        return None
    spans = [(i, j) for i in range(len(gap)) for j in range(i + 1, len(gap) + 1)]
    holding = [s for s in spans if gap[slice(*s)].sum() / total >= _OF_ERROR and share[slice(*s)].sum() <= _OF_ROWS]
    if not holding:
        return None
    chosen = slice(*min(holding, key=lambda s: (float(share[slice(*s)].sum()), s[1] - s[0])))
    rows = int(bins.rows[chosen].sum())
    weight, claimed, right = (float(v[chosen].sum()) for v in (bins.weight, bins.confidence_sum, bins.correct_sum))
    c = bins.confidence[chosen]
    variance = float((bins.weight[chosen] * c * (1 - c)).sum())
    if two_sided(rows * claimed / weight, rows * right / weight, rows * variance / weight, rows) > _P / len(spans):
        return None
    edges = np.asarray(equal_width_edges(len(gap)))
    return Range(float(edges[chosen.start]), float(edges[chosen.stop]), rows, claimed / weight, right / weight)
