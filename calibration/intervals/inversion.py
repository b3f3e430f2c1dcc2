"""A test turned around: the true errors under which what was observed is not extreme.

Near zero the test is one-sided, so the interval reaches 0 in 95 % of the cases in which the truth is 0 (Feldman and
Cousins 1998, in spirit).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Inverted:
    """95 % interval of the true error, and the one under which half of all samples would show more (0 if none)."""

    low: float
    middle: float
    high: float


def turn_around(observed: float, errors: Vector, observed_given: Callable[[float], Vector]) -> Inverted:
    """The true errors (of a grid that begins at 0) under which what was observed lies in the middle 95 %."""
    known: dict[int, tuple[float, float, float]] = {}
    base = float(observed_given(0.0).mean())

    def limits(i: int) -> tuple[float, float, float]:
        if i not in known:
            drawn = observed_given(float(errors[i]))
            mean, sd = float(drawn.mean()), float(drawn.std())
            # One-sided at the null, two-sided once the distribution has moved away from it.
            tail = 0.025 * float(np.clip((mean - base) / (Z95 * sd + 1e-300), 0.0, 1.0)) if i else 0.0
            low, middle, high = np.quantile(drawn, (tail, 0.5, 1 - (0.05 - tail)))
            known[i] = (-np.inf if tail == 0 else float(low), float(middle), float(high))
        return known[i]

    def end(which: int, passed: Callable[[float, float], bool] = operator.ge) -> float:
        # All three rise with the true error, so each end is found by halving.
        i = first_true(len(errors), lambda k: passed(limits(k)[which], observed))
        if i in (0, len(errors)):
            return 0.0 if i == 0 else float(errors[-1])
        return crossing(errors, i, limits(i - 1)[which] - observed, limits(i)[which] - observed)

    low, high = end(2), end(0, operator.gt)
    high = max(low, high)
    return Inverted(low, min(max(end(1), low), high), high)


def first_true(count: int, holds: Callable[[int], bool]) -> int:
    """The smallest index at which a condition that stays true holds; `count` if none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def crossing(errors: Vector, i: int, before: float, after: float) -> float:
    """The error between grid points i - 1 and i at which a distance changes sign."""
    if not np.isfinite(before) or not np.isfinite(after) or before == after:
        return float(errors[i])
    share = float(np.clip(-before / (after - before), 0.0, 1.0))
    return float(errors[i - 1] + share * (errors[i] - errors[i - 1]))
