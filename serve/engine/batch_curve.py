"""How long runs of 1, 2, 4, ... rows take, and the batch size that follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
OVERHEAD = 6e-5  # seconds that each run costs the server besides, in hand-over between threads
WORSE = 0.95  # of the best rate: two sizes in a row below that, and larger ones are not tried
LEAST_LARGER = 2.0  # seconds that a run of a second size may take, where the first has used up the time

Timer = Callable[[int, float], float]  # rows, deadline -> seconds


@dataclass(frozen=True)
class BatchPoint:
    rows: int
    seconds: float  # one run, best of the repeats

    @property
    def rate(self) -> float:
        return self.rows / (self.seconds + OVERHEAD)


@dataclass(frozen=True)
class BatchCurve:
    """`whole`: larger sizes than the last are known to be no better, or not possible; else time ran out."""

    points: tuple[BatchPoint, ...] = ()
    whole: bool = True

    @property
    def cap(self) -> int:
        """The smallest size within 2 % of the best: a larger one would only add latency."""
        best = max((p.rate for p in self.points), default=0.0)
        return next((p.rows for p in self.points if p.rate >= 0.98 * best), 1)

    def said(self) -> str:
        """Rows of a run and what it makes a second."""
        rates = ", ".join(
            f"{p.rows}: {p.rows / p.seconds:.{0 if p.rows >= 10 * p.seconds else 2}f}/s" for p in self.points
        )
        return rates if self.whole else f"{rates}; larger ones are tried while serving"

    def with_point(self, point: BatchPoint, *, whole: bool) -> BatchCurve:
        others = [p for p in self.points if p.rows != point.rows]
        return BatchCurve(tuple(sorted([*others, point], key=lambda p: p.rows)), whole)


def measure(timer: Timer, *, sizes: Sequence[int] = BATCH_SIZES, budget: float = 0.8) -> BatchCurve:
    """Runs of each size until two in a row are slower than the best, or the budget of seconds is spent.

    One size alone says nothing of batching: where the first has used up the budget, one larger is measured all the
    same, once, the largest of 8, 4 and 2 that would take two seconds at the pace of the first.
    """
    points: list[BatchPoint] = []
    start = time.perf_counter()

    def spent() -> float:
        return time.perf_counter() - start

    whole = True
    for rows in sizes:
        points.append(BatchPoint(rows, timer(rows, start + budget)))
        rates = [p.rate for p in points]
        if len(points) >= 3 and max(rates[-2:]) < WORSE * max(rates):
            break
        if rows != sizes[-1] and spent() + 4 * points[-1].seconds > budget:
            whole = False
            break
    if len(points) == 1 and not whole:
        larger = [n for n in (8, 4, 2) if n in sizes]
        rows = next((n for n in larger if n * points[0].seconds <= LEAST_LARGER), larger[-1])
        points.append(BatchPoint(rows, timer(rows, start)))  # the deadline is past: one run
    # Sizes near the best are looked at again while there is time: they often differ by less than a machine's noise.
    for _ in range(4):
        best = max((p.rate for p in points), default=0.0)
        near = [n for n, p in enumerate(points) if p.rate >= WORSE * best]
        if len(near) < 2 or spent() > 0.5 * budget:
            break
        for n in near:
            rows = points[n].rows
            points[n] = BatchPoint(rows, min(timer(rows, start + budget), points[n].seconds))
    return BatchCurve(tuple(points), whole)
