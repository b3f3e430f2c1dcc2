"""What the plan is made of, measured here: the batch curve on one core, and what a request costs the server besides."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from calibrant.errors import ConfigError
from calibrant.serve.callers.generator import Load, Outcome, request_bytes, run
from calibrant.serve.engine.batch_curve import OVERHEAD, BatchCurve
from calibrant.serve.engine.session import Session
from calibrant.serve.processes.background import running

LEAST = 2e-5  # seconds of a request; a difference of two measurements may be anything


def measured_curve(path: Path, *, seconds: float = 3.0) -> tuple[Session, BatchCurve]:
    """Of one thread, by the time of the processor."""
    session = Session(path, threads=1)
    session.warm_up(budget=seconds)
    if not session.curve.points:
        raise ConfigError("its input's size is open, so no curve can be measured", where=path)
    return session, session.curve


def measured_front(session: Session, curve: BatchCurve, *, seconds: float = 2.0) -> float:
    """Processor seconds of a request beside its run: a real server under full load, less what the curve says.

    One batch runs and one waits. More callers would only lengthen the queue, whose bodies have left the caches when
    their turn comes: with 64 of 600 KB in line a request cost 6 % more than it did at 95 % load.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if len(cores) < 2:
        raise ConfigError("needs two cores, one for the server and one for its callers", where="--front-us")
    inputs = [session.inputs[name].to_dict() for name in session.required]
    try:
        os.sched_setaffinity(0, cores[:1])
        arguments = ["--quiet", "--threads", "1", "--no-huge-pages", "--batch-cap", str(curve.cap)]
        with running(session.path, arguments=arguments) as server:
            os.sched_setaffinity(0, cores[1:])
            request = request_bytes(server.url, session.own_name, inputs, rows=1, binary=True)
            load = Load(clients=2 * curve.cap + 2, seconds=seconds, warm_seconds=0.0)
            before = processor_seconds(server.pid)
            outcome: Outcome = asyncio.run(run(server.url, request, load))
            spent = processor_seconds(server.pid) - before
    finally:
        os.sched_setaffinity(0, cores)
    if not outcome.ok:
        raise ConfigError(f"the server answered nothing ({outcome.errors})", where=session.path)
    at_cap = next(p for p in curve.points if p.rows == curve.cap)
    return max(LEAST, spent / outcome.ok - (at_cap.seconds + OVERHEAD) / at_cap.rows)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
