"""Load on a server, and what it answered: closed loop (so many callers) or open loop (so many requests a second).

In the open loop a request's latency counts from the moment it was due, not from when a connection was free for it, so
a server that stalls is charged for every request that should have been sent meanwhile (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import selectors
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, DataError
from calibrant.serve.callers.caller import Caller
from calibrant.serve.protocol.tensors import NUMPY


@dataclass(frozen=True)
class Load:
    clients: int = 64
    seconds: float = 5.0
    rate: float | None = None  # requests a second; None is the closed loop
    at_random: bool = False  # in the open loop: as independent callers come, not at even steps
    rows: int = 1
    binary: bool = True
    warm_seconds: float = 0.5
    timeout: float = 10.0  # to wait for the last answers


@dataclass
class Outcome:
    seconds: float
    ok: int
    failed: int
    unanswered: int
    latencies: NDArray[np.float64]  # seconds, of good answers
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.ok / self.seconds

    def to_dict(self) -> dict[str, Any]:
        shown = {f"p{q:g}_ms": self.percentile(q) for q in (50, 90, 99, 99.9)}
        return {
            "seconds": self.seconds,
            "ok": self.ok,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "requests_per_second": self.rate,
            **shown,
            "errors": self.errors,
        }

    def percentile(self, q: float) -> float | None:
        return float(np.percentile(self.latencies, q) * 1e3) if len(self.latencies) else None


def request_bytes(
    url: str,
    model: str,
    inputs: list[dict[str, Any]],
    *,
    rows: int,
    binary: bool,
    seed: int = 0,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """One whole HTTP request for a model with these inputs (as its metadata lists them), filled with noise."""
    rng = np.random.default_rng(seed)
    entries, tail = [], b""
    for spec in inputs:
        shape = [rows if i == 0 and d == -1 else d for i, d in enumerate(spec["shape"])]
        if -1 in shape or spec["datatype"] not in NUMPY or spec["datatype"] == "BYTES":
            raise ConfigError(
                f'input "{spec["name"]}" {spec["datatype"]} {spec["shape"]} cannot be filled', where=model
            )
        dtype = NUMPY[spec["datatype"]]
        array = rng.integers(0, 2 if dtype.kind == "b" else 127, shape).astype(dtype)
        if dtype.kind == "f":
            array = rng.normal(size=shape).astype(dtype)
        entry: dict[str, Any] = {"name": spec["name"], "shape": shape, "datatype": spec["datatype"]}
        if binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            tail += array.tobytes()
        else:
            entry["data"] = array.reshape(-1).tolist()
        entries.append(entry)
    parameters = {"parameters": {"binary_data_output": True}} if binary else {}
    head = json.dumps({"inputs": entries, **parameters}).encode()
    at = urlsplit(url)
    lines = [
        f"POST {at.path.rstrip('/')}/v2/models/{quote(model)}/infer HTTP/1.1",
        f"Host: {at.netloc}",
        f"Content-Length: {len(head) + len(tail)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    if binary:
        lines.append(f"Inference-Header-Content-Length: {len(head)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + head + tail


async def run(url: str, request: bytes, load: Load) -> Outcome:
    """Connects, warms up for a moment, and measures."""
    at = urlsplit(url)
    if at.scheme != "http" or at.hostname is None:
        raise ConfigError("give an address like http://127.0.0.1:8000", where=url)
    loop = asyncio.get_running_loop()
    meter = _Meter(load, loop)
    host, port = at.hostname, at.port or 80

    async def connect(caller: Caller) -> None:
        await loop.create_connection(lambda: caller, host, port)

    try:
        for _ in range(load.clients):
            caller = Caller(request, connect, meter.answered)
            await connect(caller)
            meter.callers.append(caller)
    except OSError as error:
        raise DataError(f"no server answers ({error.strerror or error})", where=url) from None
    try:
        return await meter.measure()
    finally:
        for caller in meter.callers:
            caller.close()
        await asyncio.sleep(0.01)  # the loop closes the sockets in its next rounds


def run_exactly(url: str, request: bytes, load: Load) -> Outcome:
    """`run` in a loop that waits by select(), to the microsecond: epoll counts milliseconds, and a request sent that
    much late is charged to the server. For some hundred callers at most."""
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        return runner.run(run(url, request, load))


def due_times(load: Load, rate: float) -> Iterator[float]:
    """When the requests of an open loop fall due, in seconds from its start: the same ones each time."""
    rng = np.random.default_rng(0) if load.at_random else None
    due = 0.0
    while due < load.warm_seconds + load.seconds:
        yield due
        due += 1 / rate if rng is None else float(rng.exponential(1 / rate))


class _Meter:
    def __init__(self, load: Load, loop: asyncio.AbstractEventLoop) -> None:
        self.load, self.loop = load, loop
        self.callers: list[Caller] = []
        self.free: deque[Caller] = deque()
        self.due: deque[float] = deque()
        self.latencies: list[float] = []
        self.failed = 0
        self.errors: dict[str, int] = {}
        self.from_, self.until = 0.0, 0.0

    async def measure(self) -> Outcome:
        start = time.perf_counter()
        self.from_ = start + self.load.warm_seconds
        self.until = self.from_ + self.load.seconds
        if self.load.rate is None:
            for caller in self.callers:
                caller.send(time.perf_counter())
            await asyncio.sleep(self.until - time.perf_counter())
        else:
            self.free.extend(self.callers)
            await self._schedule(start, self.load.rate)
        if self.load.rate is not None:
            end = time.perf_counter() + self.load.timeout
            while (self.due or any(c.busy for c in self.callers)) and time.perf_counter() < end:
                await asyncio.sleep(0.01)
        # In the closed loop every caller is waiting at the end; one that has waited all the time was not answered.
        since = self.until if self.load.rate is not None else self.from_
        unanswered = len(self.due) + sum(c.busy and c.sent <= since for c in self.callers)
        return Outcome(
            self.load.seconds, len(self.latencies), self.failed, unanswered, np.array(self.latencies), self.errors
        )

    async def _schedule(self, start: float, rate: float) -> None:
        """Requests fall due at even steps, or at random, whatever the server does."""
        for after in due_times(self.load, rate):
            due = start + after
            while (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            if self.free:
                self.free.popleft().send(due)
            else:
                self.due.append(due)

    def answered(self, caller: Caller, status: int, body: bytes) -> None:
        now = time.perf_counter()
        counts = self.from_ <= (now if self.load.rate is None else caller.sent) <= self.until
        if counts and status == 200:
            self.latencies.append(now - caller.sent)
        elif counts:
            self.failed += 1
            what = f"{status}: {body[:120].decode(errors='replace')}"
            self.errors[what] = self.errors.get(what, 0) + 1
        if self.load.rate is None:
            if now < self.until:
                caller.send(now)
        elif self.due:
            caller.send(self.due.popleft())
        else:
            self.free.append(caller)
