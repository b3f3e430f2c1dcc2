"""One worker of the server as a queue: requests come, whatever waits runs together the moment the last run is over.

    start = end of the last run, or where nobody waits then: arrival of the next + wake
    rows  = those that have come by then, at most the cap
    end   = start + run(rows) + rows * front

run: the measured batch curve, straight lines between its points. front: what reading, checking and answering one
request takes, on the same core. wake: what a request waits longer that finds the server idle: for a processor to wake,
for caches to be filled. That is the batcher of `serve.models.batcher`, without its deadlines and refusals.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.serve.engine.batch_curve import OVERHEAD, BatchCurve

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Besides:
    """Seconds beside the run: of each request, and of one that finds the server idle."""

    request: float
    wake: float = 0.0


@dataclass(frozen=True)
class Worker:
    """Seconds of 1, 2, ... cap rows with all that belongs to them, and until it begins where it was idle."""

    service: Array
    wake: float = 0.0

    @classmethod
    def of(cls, curve: BatchCurve, front: Besides, cap: int | None = None) -> Worker:
        rows = np.arange(1, (cap or curve.cap) + 1)
        return cls(run_seconds(curve, rows) + rows * front.request, front.wake)

    @property
    def capacity(self) -> float:
        """Requests a second that it can answer at most."""
        return float((np.arange(1, len(self.service) + 1) / self.service).max())


def run_seconds(curve: BatchCurve, rows: NDArray[np.float64] | NDArray[np.int64]) -> Array:
    """Of runs of so many rows: straight between the measured points, and on behind the last."""
    last = curve.points[-1]
    between = np.interp(rows, [p.rows for p in curve.points], [p.seconds for p in curve.points])
    return np.asarray(np.where(rows > last.rows, rows * last.seconds / last.rows, between) + OVERHEAD)


@dataclass(frozen=True)
class Simulated:
    latencies: Array  # seconds, in the order of arrival
    busy: float  # share of the time
    rows: float  # of a run, in the mean

    def percentile(self, q: float) -> float:
        return float(np.percentile(self.latencies, q))


def simulate(worker: Worker, rate: float, *, requests: int = 50_000, seed: int = 0) -> Simulated:
    """Requests of one row that come at random (a Poisson process); the first tenth is the way in and not counted."""
    rng = np.random.default_rng(seed)
    return answered(worker, np.cumsum(rng.exponential(1 / rate, requests)), skip=requests // 10)


def answered(worker: Worker, arrivals: Array, *, skip: int = 0) -> Simulated:
    """What becomes of requests that come at these times, in order."""
    times, service, cap = arrivals.tolist(), worker.service.tolist(), len(worker.service)
    ends = np.empty(len(times))
    free, at, busy, runs = -np.inf, 0, 0.0, 0
    while at < len(times):
        start = free if times[at] <= free else times[at] + worker.wake
        until = bisect_right(times, start, at + 1, min(len(times), at + cap))
        took = service[until - at - 1]
        free = start + took
        ends[at:until] = free
        busy, runs, at = busy + took, runs + 1, until
    return Simulated((ends - arrivals)[skip:], busy / free, len(times) / runs)
