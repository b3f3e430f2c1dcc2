"""Counts and times of one model, as Triton's statistics extension and Prometheus report them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass
class Histogram:
    """Counts of seconds by upper bound; the last is everything above."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass
class Statistics:
    """Counts and nanoseconds of one model's requests, as Triton's statistics extension reports them.

    A request is counted once, when it is answered, and alike in every stage: tools that watch a server take counts
    that differ for a fault. The time of a run is shared out among its requests.
    """

    success: int = 0
    success_ns: int = 0
    fail: int = 0
    fail_ns: int = 0
    queue_ns: int = 0  # of requests that were answered, as the three that follow
    input_ns: int = 0
    infer_ns: int = 0
    output_ns: int = 0
    rows: int = 0
    abstained: int = 0
    cancelled: int = 0
    turned_away: int = 0  # refused because the queue was full
    shadowed: int = 0
    last_inference_ms: int = 0
    latency: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class Counts:
    """Runs of a session since the start: counts and nanoseconds."""

    executions: int = 0
    rows: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    input_ns: int = 0
    dropped: int = 0
    reruns: int = 0
