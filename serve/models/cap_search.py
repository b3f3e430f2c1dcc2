"""A better batch cap, found while serving: where the start had no time to measure larger runs, they are tried.

Only when twice the cap waits anyway, and only every fourth time, so that nobody waits for a trial. Three runs of either
size decide, by their best: the larger one must be 2 % faster a row. Where it is not, it is tried again after a while,
since the machine may have been busy; after three times the search is over, and the cap stays.
"""

from __future__ import annotations

from collections.abc import Callable

from calibrant.serve.engine.batch_curve import BATCH_SIZES, BatchCurve, BatchPoint

EVERY, ENOUGH, ROUNDS = 4, 3, 3
LATER = 8  # times as seldom in the next round
LONGEST = 2.0  # seconds that a run on trial may be expected to take


class CapSearch:
    """`better` is told the new curve."""

    def __init__(self, curve: BatchCurve, better: Callable[[BatchCurve], None]) -> None:
        self.curve, self._better = curve, better
        self.cap = curve.cap
        self._skipped, self._lost = 0, 0
        self._runs: dict[int, list[float]] = {}  # size: seconds of a row
        self._stop_where_nothing_larger_is()

    @property
    def over(self) -> bool:
        return self.curve.whole

    def goal(self, waiting_rows: int, row_seconds: float) -> int:
        """How many rows the next run may have."""
        if self.over or waiting_rows < 2 * self.cap or 2 * self.cap * row_seconds > LONGEST:
            return self.cap
        self._skipped += 1
        if self._skipped < EVERY * LATER**self._lost:
            return self.cap
        self._skipped = 0
        return 2 * self.cap

    def ran(self, rows: int, seconds: float) -> None:
        """Takes what a run took; those that filled less than three quarters of a size say nothing of it."""
        size = next((n for n in (self.cap, 2 * self.cap) if 0.75 * n < rows <= n), None)
        if self.over or size is None:
            return
        self._runs.setdefault(size, []).append(seconds / rows)
        if min(len(self._runs.get(n, ())) for n in (self.cap, 2 * self.cap)) < ENOUGH:
            return
        now, larger = (BatchPoint(n, n * min(self._runs[n])) for n in (self.cap, 2 * self.cap))
        grows = larger.rate > 1.02 * now.rate
        self._lost = 0 if grows else self._lost + 1
        whole = self._lost >= ROUNDS or (grows and larger.rows >= BATCH_SIZES[-1])
        self.curve = self.curve.with_point(now, whole=whole).with_point(larger, whole=whole)
        self.cap = larger.rows if grows else self.cap
        self._runs = {larger.rows: self._runs[larger.rows]} if grows else {}
        if grows or whole:
            self._better(self.curve)

    def _stop_where_nothing_larger_is(self) -> None:
        if self.cap >= BATCH_SIZES[-1] or any(p.rows > self.cap for p in self.curve.points):
            self.curve = BatchCurve(self.curve.points, True)
