"""Interval of the AURC, from the cells of confidence: of two or three intervals the wider limits.

AURC = sum_k w_k R_k / W, R_k = E_k / W_k the error rate of the surest rows down to cell k: a mean of losses that are
few and large, the errors of the surest rows, so the interval of such means (see `loss_interval`) with the variance of
the delta method. Where hardly one of the surest rows is wrong, what they are worth is read off the others: the AURC of
error rates that are plausible behind the counts of groups of rows (see `beta_binomial`). A group holds twice the rows
of the one above it, since the surest rows weigh most. Without any error: up to Wilson's limit of their share. Where
more than half is lost, the limits of what is won besides, which is few and large then.
Null: what the same confidences give when each row is right with the probability that it claims.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.beta_binomial import weighed_accuracies
from calibrant.calibration.intervals.binned import DRAWS
from calibrant.calibration.intervals.means import loss_interval, share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.ranking import cells_of
from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]


def measure_aurc(s: Statistics, value: float) -> Measured:
    _, right, wrong, confidence = (a[::-1] for a in cells_of(s))
    weight = right + wrong
    seen, claimed = _Risks(weight, wrong / weight), _Risks(weight, 1.0 - confidence)
    if value <= 0.0:
        return Measured(value, 0.0, share_interval(0.0, s.effective_rows)[1], claimed.area)
    variances = seen.variance(), claimed.variance()
    low, high = loss_interval(value, variances[0], s.effective_rows, claimed=(claimed.area, variances[1]), most=1.0)
    if low is None or high is None:
        return Measured(value, null=claimed.area)
    if value > 0.5:
        expected = (1.0 - claimed.area, variances[1])
        least, most = loss_interval(1.0 - value, variances[0], s.effective_rows, claimed=expected, most=1.0)
        if least is not None and most is not None:
            low, high = min(low, 1.0 - most), max(high, 1.0 - least)
    other = _plausible(weight, right, confidence, s.effective_rows)
    return Measured(value, max(min(low, other[0]), 0.0), min(max(high, other[1]), 1.0), claimed.area)


@dataclass(frozen=True)
class _Risks:
    """Cells from the surest to the least sure: their weight, and the share of wrong rows in each."""

    weight: Vector
    risk: Vector

    @property
    def down(self) -> Vector:
        return np.asarray(self.weight.cumsum())

    @property
    def rates(self) -> Vector:
        return np.asarray((self.weight * self.risk).cumsum() / self.down)

    @property
    def area(self) -> float:
        return float(self.weight @ self.rates / self.down[-1])

    def moves(self) -> tuple[Vector, Vector]:
        """What a right row of each cell adds to W AURC, and what a wrong one adds beyond that.

        R_i - AURC + sum over the cells k at or below i of w_k (wrong - R_k) / W_k.
        """
        share = self.weight / self.down
        below = np.cumsum((share * self.rates)[::-1])[::-1]
        return self.rates - self.area - below, np.cumsum(share[::-1])[::-1]

    def variance(self) -> float:
        """Of what one row adds."""
        base, heavy = self.moves()
        squares = self.risk * (base + heavy) ** 2 + (1.0 - self.risk) * base**2
        return float(self.weight @ squares / self.down[-1])

    def variance_of_places(self) -> float:
        """The part of it that comes from how sure the rows happen to be."""
        base, heavy = self.moves()
        return float(self.weight @ (base + heavy * self.risk) ** 2 / self.down[-1])


def _plausible(weight: Vector, right: Vector, confidence: Vector, rows: float) -> tuple[float, float]:
    """The middle 95 % of the AURC that could be behind these counts; `rows`: effective ones."""
    down, scale = weight.cumsum(), rows / weight.sum()
    doublings = np.floor(np.log2(np.maximum((down - weight / 2) * scale, 0.5)))
    _, group = np.unique(doublings, return_inverse=True)
    size = np.bincount(group, weight)
    claim, hits = np.bincount(group, weight * confidence) / size, np.bincount(group, right)
    rng = np.random.default_rng(0)
    risk = (1.0 - weighed_accuracies(claim, hits * scale, size * scale, DRAWS, rng))[:, group]
    areas = ((weight * risk).cumsum(axis=1) / down) @ weight / down[-1]
    places = _Risks(weight, risk.mean(axis=0)).variance_of_places() / rows
    low, high = np.quantile(areas + np.sqrt(places) * rng.standard_normal(len(areas)), (0.025, 0.975))
    return float(low), float(high)
