"""Answer alone, or ask a human: what a threshold on the confidence costs and brings, on the labelled rows of a file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.conformal.abstain import Abstention, abstain_for_risk_of_answers
from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.metrics.ranking import RiskCoverage, risk_coverage
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.numbers.rows import rows_of

POINTS = 240  # of the drawn curve


@dataclass(frozen=True)
class Split:
    """Rows at least as sure as `threshold` are answered alone, the others go to a human."""

    threshold: float
    rows: int
    answered: int
    wrong: int  # of the answered ones

    @property
    def handed(self) -> int:
        return self.rows - self.answered

    @property
    def share(self) -> float:
        return self.answered / self.rows

    @property
    def error(self) -> Measured | None:
        """Of the answered ones; None where there is none."""
        if not self.answered:
            return None
        rate = self.wrong / self.answered
        return Measured(rate, *share_interval(rate, self.answered))

    def cost(self, wrong: float, handed: float) -> float:
        """Of a thousand pictures."""
        return 1000 * (wrong * self.wrong + handed * self.handed) / self.rows


@lru_cache(4)
def curve(scored: Scored) -> RiskCoverage:
    rows = rows_of(scored)
    return risk_coverage(rows.confidence, ~rows.right)


def split(scored: Scored, threshold: float) -> Split:
    """The server answers at the threshold too."""
    found = curve(scored)
    rows = len(rows_of(scored).confidence)
    n = int(np.searchsorted(-found.threshold, -threshold, side="right"))
    if not n:
        return Split(threshold, rows, 0, 0)
    return Split(threshold, rows, round(float(found.weight[n - 1])), round(float(found.errors[n - 1])))


@lru_cache(64)
def proven(scored: Scored, risk: float) -> Abstention:
    """The laxest threshold whose answers err at most so often in 95 of 100 such samples; raises where none is."""
    rows = rows_of(scored)
    return abstain_for_risk_of_answers(rows.confidence, ~rows.right, risk=risk)


def cheapest(scored: Scored, wrong: float, handed: float) -> Split:
    """The threshold at which these rows cost least; 1 where it pays to answer none of them."""
    found = curve(scored)
    total = wrong * found.errors + handed * (found.weight[-1] - found.weight)
    best = int(np.argmin(total))
    if handed * found.weight[-1] <= total[best]:
        return Split(1.0, round(float(found.weight[-1])), 0, 0)
    return split(scored, float(found.threshold[best]) if best < len(found.threshold) - 1 else 0.0)


def worth_answering(wrong: float, handed: float) -> float:
    """The confidence from which a calibrated model's answer costs less than a human: its risk 1 - p times `wrong`."""
    return min(1.0, max(0.0, 1.0 - handed / wrong)) if wrong > 0 else 0.0


@dataclass(frozen=True)
class Drawn:
    """Points of the curve, from the surest rows on, with the 95 % interval of the error rate."""

    threshold: NDArray[np.float64]
    share: NDArray[np.float64]
    error: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@lru_cache(16)
def drawn(scored: Scored, *, points: int = POINTS, fewest: int = 20) -> Drawn:
    """Evenly over the share that is answered; nothing is drawn of fewer rows than `fewest`."""
    found = curve(scored)
    counts = np.unique(np.linspace(min(fewest, found.weight[-1]), found.weight[-1], points).round())
    at = np.unique(np.minimum(np.searchsorted(found.weight, counts), len(found.weight) - 1))
    weight, errors = found.weight[at], found.errors[at]
    limits = np.array([share_interval(e / w, w) for e, w in zip(errors, weight, strict=True)])
    return Drawn(found.threshold[at], found.coverage[at], found.risk[at], limits[:, 0], limits[:, 1])


def crossing(scored: Scored, one: float, other: float) -> NDArray[np.int64]:
    """Rows between two thresholds, the wrong ones first, each half by falling confidence."""
    rows = rows_of(scored)
    low, high = sorted((one, other))
    found: NDArray[np.int64] = np.flatnonzero((rows.confidence >= low) & (rows.confidence < high))
    return found[np.lexsort((-rows.confidence[found], rows.right[found]))]


def beside_the_line(scored: Scored, threshold: float, most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows just above and just below, the nearest first."""
    confidence = rows_of(scored).confidence
    above, below = np.flatnonzero(confidence >= threshold), np.flatnonzero(confidence < threshold)
    nearest = above[np.argsort(confidence[above], kind="stable")[:most]]
    return nearest, below[np.argsort(-confidence[below], kind="stable")[:most]]


def percent_up(threshold: float) -> float:
    """In percent, on the next step of a slider that has a tenth of one."""
    return min(100.0, math.ceil(round(threshold * 1000, 6)) / 10)
