"""One file with one setting, measured: a real server in processes of its own under a real load.

`capacity`: answers a second when callers send as fast as they get answers. Then requests come at random at a share of
it; with a wished p99 the shares fall until it holds, and `rate` is what came then. Callers and server are on the same
machine, so figures are those of this machine with its callers on it: compare them with each other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibrant.commands.tune.settings import Setting
from calibrant.errors import ConfigError
from calibrant.serve.callers.generator import Load, Outcome, request_bytes, run
from calibrant.serve.engine.session import Session
from calibrant.serve.processes.background import running
from calibrant.serve.processes.layout import Layout

SHARES = (0.9, 0.75, 0.55, 0.35, 0.15)  # of the capacity, with a wished p99
USUAL = 0.7  # without one
ANSWERS, LONGEST = 300, 10.0  # that a percentile is made of at least, if they come in so many seconds
START_SECONDS = 300.0
NAME = "tuned"  # of the model while it is measured
BUSY = 0.9  # share of a core: callers that take more may be what was measured


@dataclass(frozen=True)
class Figures:
    """Of one setting. `rate`: answers a second that it carries, 0 where none is in time."""

    capacity: float
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    callers_busy: float = 0.0  # share of a core
    failed: int = 0

    @property
    def by_callers(self) -> bool:
        """Were the callers perhaps too slow to show more?"""
        return self.callers_busy > BUSY

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measured_cap(path: Path, layout: Layout, *, seconds: float = 0.8) -> int:
    """The cap that the server would measure by itself at its start."""
    return Session(path, threads=layout.threads).warm_up(budget=seconds)


def measure(path: Path, setting: Setting, *, p99: float | None, seconds: float = 2.0, clients: int = 32) -> Figures:
    """`p99` in seconds."""
    session = Session(path, threads=1)
    inputs = [session.inputs[name].to_dict() for name in session.required]
    layout = setting.layout
    arguments = ["--quiet", "--workers", str(layout.workers), "--threads", str(layout.threads), "--batch-cap"]
    with running(f"{NAME}={path}", arguments=[*arguments, str(setting.cap)], timeout=START_SECONDS) as server:
        request = request_bytes(server.url, NAME, inputs, rows=1, binary=True)
        spent, start = time.process_time(), time.perf_counter()
        load = Load(clients=max(clients, 8 * layout.workers), seconds=seconds)
        full: Outcome = asyncio.run(run(server.url, request, load))
        busy = (time.process_time() - spent) / (time.perf_counter() - start)
        if not full.ok:
            raise ConfigError(f"the server answered nothing ({full.errors})", where=path)
        found = _in_time(server.url, request, full.rate, SHARES if p99 is not None else (USUAL,), p99, seconds)
    share, outcome = found
    rate = full.rate if p99 is None else share * full.rate
    return Figures(full.rate, rate, outcome.percentile(50), outcome.percentile(99), busy, full.failed + outcome.failed)


def _in_time(
    url: str, request: bytes, capacity: float, shares: Sequence[float], p99: float | None, seconds: float
) -> tuple[float, Outcome]:
    """The first share at which answers come in time (0: none), and what was seen at the last one."""
    for share in shares:
        rate = share * capacity
        window = min(LONGEST, max(seconds, ANSWERS / rate))
        outcome = asyncio.run(run(url, request, Load(clients=256, seconds=window, rate=rate, at_random=True)))
        last = outcome.percentile(99)
        if p99 is None or (last is not None and last <= 1e3 * p99 and not outcome.failed + outcome.unanswered):
            return share, outcome
    return 0.0, outcome
