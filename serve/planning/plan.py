"""From a rate and a latency to workers, machines and what they cost."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from calibrant.errors import ConfigError
from calibrant.serve.planning.simulator import Simulated, Worker, simulate

STEPS = 12  # of the search for the highest rate
FULLEST = 0.95  # share of its capacity that a worker is ever planned with: behind it no latency is stable


@dataclass(frozen=True)
class Demand:
    rate: float  # requests a second in the mean of the day
    p99: float  # seconds
    peak: float = 1.0  # times the mean in the busiest hour
    cores: int = 1  # of a machine; one worker each
    spare: int = 0  # machines that may be lost at the peak
    price: float = 0.0  # of a machine an hour


@dataclass(frozen=True)
class Fleet:
    capacity: float  # requests a second of one worker, whatever the latency
    worker_rate: float  # that it may get for the wished latency
    workers: int
    machines: int
    load: float  # share of its capacity that a worker has at the peak
    p50_ms: float
    p95_ms: float
    p99_ms: float
    rows: float  # of a run
    machine_hours: float  # of a day
    cost_day: float
    cost_million: float  # for a million answers

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan(worker: Worker, demand: Demand) -> Fleet:
    """The fewest machines with which 99 of 100 answers come in time at the peak, with the spare ones gone."""
    worker_rate = highest_rate(worker, demand.p99)
    peak = demand.rate * demand.peak
    workers = math.ceil(peak / worker_rate)
    needed = math.ceil(workers / demand.cores)
    machines = needed + demand.spare
    each = peak / (needed * demand.cores)
    found = simulate(worker, each)
    hours = 24.0 * machines
    cost = hours * demand.price
    p50, p95, p99 = (1e3 * found.percentile(q) for q in (50, 95, 99))
    return Fleet(
        capacity=worker.capacity,
        worker_rate=worker_rate,
        workers=needed * demand.cores,
        machines=machines,
        load=each / worker.capacity,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        rows=found.rows,
        machine_hours=hours,
        cost_day=cost,
        cost_million=cost / (demand.rate * 86_400) * 1e6,
    )


def highest_rate(worker: Worker, p99: float) -> float:
    """Requests a second of one worker of which 99 in 100 are answered in `p99` seconds."""
    alone = float(worker.service[0]) + worker.wake
    if p99 <= alone:
        raise ConfigError(
            f"one request alone takes {1e3 * alone:.3g} ms, so no number of machines is enough",
            where="--p99",
            fix="allow more, or make the model faster: calibrant quantize, a smaller network",
        )
    low, high = 0.0, FULLEST * worker.capacity
    if _in_time(simulate(worker, high), p99):
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _in_time(simulate(worker, middle), p99) else (low, middle)
    if low == 0.0:
        raise ConfigError("is too close to what one request alone takes", where="--p99", fix="allow more")
    return low


def _in_time(found: Simulated, p99: float) -> bool:
    return found.percentile(99) <= p99
