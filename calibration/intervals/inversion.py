"""A test turned around: the true errors under which what was observed is not extreme.

Near zero the test is one-sided, so the interval reaches 0 in 95 % of the cases in which the truth is 0 (Feldman and
Cousins 1998, in spirit).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95

Vector = NDArray[np.float64]
_MOST_STEPS = 16
_EXACT = 1e-9  # counts that are equal may differ by rounding
_CLOSE = 0.05  # of the sd of what is observed: nearer than the draws can tell


@dataclass(frozen=True)
class Inverted:
    """95 % interval of the true error, and the one under which half of all samples would show more (0 if none)."""

    low: float
    middle: float
    high: float


def turn_around(observed: float, largest: float, observed_given: Callable[[float], Vector]) -> Inverted:
    """The true errors from 0 to `largest` under which what was observed lies in the middle 95 %."""
    test = _Test(observed, largest, observed_given)
    low, high = test.where_passed(_HIGH), test.where_passed(_LOW)
    high = max(low, high)
    return Inverted(low, min(max(test.where_passed(_MIDDLE), low), high), high)


_LOW, _MIDDLE, _HIGH = 0, 1, 2


class _Test:
    """Remembers what was simulated: the three limits are asked for at the same true errors."""

    def __init__(self, observed: float, largest: float, observed_given: Callable[[float], Vector]) -> None:
        self.observed, self.largest, self.observed_given = observed, largest, observed_given
        self._known: dict[float, tuple[float, float, float, float]] = {}
        self._base: float | None = None

    def limits(self, error: float) -> tuple[float, float, float, float]:
        """Low and high limit and median of what is observed under an error, minus what was observed; and the sd."""
        if error not in self._known:
            drawn = np.sort(self.observed_given(error))
            mean, sd = float(drawn.mean()), float(drawn.std())
            if self._base is None:
                self._base = mean
            # One-sided at the null, two-sided once the distribution has moved away from it.
            tail = 0.025 * min(max((mean - self._base) / (Z95 * sd + 1e-300), 0.0), 1.0) if error else 0.0
            low, middle, high = (_quantile(drawn, q) - self.observed for q in (tail, 0.5, 1 - (0.05 - tail)))
            self._known[error] = (-np.inf if tail == 0 else low, middle, high, sd)
        return self._known[error]

    def where_passed(self, which: int) -> float:
        """The smallest error at which a limit, which rises with the error, is not below what was observed."""
        if self._passed(0.0, which):
            return 0.0
        self.limits(min(self.observed, self.largest))
        below = max(e for e in self._known if not self._passed(e, which))
        above = min((e for e in self._known if e > below), default=None)
        for i in range(_MOST_STEPS):
            if above is None:
                if below == self.largest:
                    return self.largest
                error = self._beyond(below, which)
            else:
                error = self._between(below, above, which, halve=i % 3 == 2)
                if above - below <= max(1e-3 * above, _CLOSE * self.limits(below)[-1]):
                    return error
            # A limit that is exactly what was observed is a count, which stays where it is over a range of errors.
            close = _EXACT < abs(self.limits(error)[which]) <= _CLOSE * self.limits(error)[-1]
            below, above = (below, error) if self._passed(error, which) else (error, above)
            if close and above is None:
                return below
            if close:
                break
        return self.largest if above is None else self._between(below, above, which, halve=False, margin=0.0)

    def _passed(self, error: float, which: int) -> bool:
        limit = self.limits(error)[which]
        return limit > _EXACT if which == _LOW else limit >= -_EXACT

    def _beyond(self, below: float, which: int) -> float:
        missing = -self.limits(below)[which]
        step = 1.2 * missing if _EXACT < missing < np.inf else below
        return min(self.largest, below + max(step, 0.02 * below, 1e-2 * self.largest))

    def _between(self, below: float, above: float, which: int, *, halve: bool, margin: float = 0.02) -> float:
        before, after = self.limits(below)[which], self.limits(above)[which]
        if halve or not np.isfinite(before) or after <= before:
            return (below + above) / 2
        share = min(max(-before / (after - before), margin), 1 - margin)
        return below + share * (above - below)


def _quantile(ordered: Vector, q: float) -> float:
    """At place q (n + 1): of n draws, a share q lies below it on average. The usual q (n - 1) cuts .3 % more off each
    end of 300 draws, which every interval would miss.
    """
    place = min(max(q * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    i = min(int(place), len(ordered) - 2)
    return float(ordered[i] + (place - i) * (ordered[i + 1] - ordered[i]))
