"""Is the calibrator worse than none? A paired comparison on rows that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import mean_interval
from calibrant.calibration.softmax import LEAST_LOG_P, log_softmax
from calibrant.calibration.verdict.case import JudgedRows, Labels, Matrix
from calibrant.calibration.verdict.verdict import Cause

FEWEST = 100  # rows; below, the interval of so skewed differences is not to be trusted
_LEAST = 0.001  # of NLL: less matters to nobody, however clear


@dataclass(frozen=True)
class Change:
    """Of the mean NLL, with its 95 % interval."""

    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"change": self.mean, "low": self.low, "high": self.high}


def nll_change(before: Matrix, after: Matrix, labels: Labels, weights: NDArray[np.float64] | None = None) -> Change:
    """Mean over rows of NLL after - NLL before, weighted by the true class; t interval of the paired differences."""
    rows = np.arange(len(labels))
    own = [np.maximum(log_softmax(z)[rows, labels], LEAST_LOG_P) for z in (before, after)]
    d = own[0] - own[1]
    w = np.ones(len(labels)) if weights is None else weights[labels]
    effective = float(w.sum() ** 2 / (w @ w))
    mean = float(w @ d / w.sum())
    if effective < 2:
        return Change(mean, float("-inf"), float("inf"))
    variance = float(w**2 @ (d - mean) ** 2) / float(w.sum()) ** 2 * effective * effective / (effective - 1)
    low, high = mean_interval(mean, variance, effective)
    assert low is not None  # from two rows on there is one
    assert high is not None
    return Change(mean, low, high)


def harm_cause(rows: JudgedRows, applied: str) -> Cause | None:
    """`applied`: what is called harmful. Rows that it was fitted on must not be asked: there it never harms."""
    if len(rows) < FEWEST:
        return None
    change = nll_change(rows.plain, rows.judged, rows.labels, rows.weights)
    if not change.low > _LEAST:
        return None
    what = "calibrator" if applied == "calibrator" else "correction of the class prior"
    return Cause(
        "harmful-calibrator",
        f"Its {what} makes it worse than without: the NLL rises by {change.mean:.3f} ({change.low:.3f} to "
        f"{change.high:.3f}) on rows that it has not seen.",
        {**change.to_dict(), "rows": len(rows)},
    )
