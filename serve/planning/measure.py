"""What the plan is made of, measured here: the batch curve on one core, and what a request costs the server besides."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from urllib.parse import quote

import numpy as np

from calibrant.errors import ConfigError
from calibrant.serve.callers.generator import Load, Outcome, request_bytes, run_exactly
from calibrant.serve.engine.batch_curve import BatchCurve
from calibrant.serve.engine.session import Session
from calibrant.serve.planning.simulator import Besides, run_seconds
from calibrant.serve.processes.background import Running, running

LEAST = 2e-5  # seconds of a request; a difference of two measurements may be anything
PLANNED, ALONE = 0.75, 0.2  # of full load: about where plans end up, and where hardly a request meets another


def measured_curve(path: Path, *, seconds: float = 3.0) -> tuple[Session, BatchCurve]:
    """Of one thread, by the time of the processor."""
    session = Session(path, threads=1)
    session.warm_up(budget=seconds)
    if not session.curve.points:
        raise ConfigError("its input's size is open, so no curve can be measured", where=path)
    return session, session.curve


def measured_front(session: Session, curve: BatchCurve, *, seconds: float = 5.0, clients: int = 64) -> Besides:
    """A real server at about the load of a plan, less what the runs took by the curve; and far below it.

    Under full load a request costs less: many are read at a time, and those that are still under way at the end would
    have to be guessed.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if len(cores) < 2:
        raise ConfigError("needs two cores, one for the server and one for its callers", where="--front-us")
    inputs = [session.inputs[name].to_dict() for name in session.required]
    arguments = ["--quiet", "--threads", "1", "--no-huge-pages", "--batch-cap", str(curve.cap)]
    try:
        os.sched_setaffinity(0, cores[:1])
        with running(session.path, arguments=arguments) as server:
            os.sched_setaffinity(0, cores[1:])
            request = request_bytes(server.url, session.own_name, inputs, rows=1, binary=True)

            def asked(load: Load) -> Outcome:
                outcome = run_exactly(server.url, request, load)
                if not outcome.ok:
                    raise ConfigError(f"the server answered nothing ({outcome.errors})", where=session.path)
                return outcome

            full = asked(Load(clients=clients, seconds=seconds / 4, warm_seconds=0.1))
            alone = asked(Load(clients=clients, seconds=seconds / 2, rate=ALONE * full.rate, warm_seconds=0.0))
            before, spent = _counts(server, session.own_name), processor_seconds(server.pid)
            rate = PLANNED * full.rate
            asked(Load(clients=clients, seconds=seconds, rate=rate, at_random=True, warm_seconds=0.0))
            spent = processor_seconds(server.pid) - spent
            requests, runs = (b - a for a, b in zip(before, _counts(server, session.own_name), strict=True))
    finally:
        os.sched_setaffinity(0, cores)
    rows = np.array([requests / runs])
    front = max(LEAST, (spent - runs * float(run_seconds(curve, rows)[0])) / requests)
    wake = float(np.median(alone.latencies)) - front - float(run_seconds(curve, np.ones(1))[0])
    return Besides(front, max(0.0, wake))


def _counts(server: Running, name: str) -> tuple[int, int]:
    """Requests and runs so far, as the server counts them."""
    with urllib.request.urlopen(f"{server.url}/v2/models/{quote(name)}/stats", timeout=10) as reply:
        stats = json.load(reply)["model_stats"][0]
        return int(stats["inference_count"]), int(stats["execution_count"])


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
