"""What `calibrant plan` simulates beside what the server does: 30, 60, 80 and 95 % of its capacity.

    python bench/plan_check.py MODEL.onnx [--seconds 20] [--rounds 3] [--json PATH]

The server has one core, its callers another; requests of one row come at random. In each round curve and front are
measured anew, then the loads take turns; a figure is the median over the rounds. The simulation gets the very times at
which the requests fell due: near capacity the queue of a minute hangs on which ones came, in both alike. `law` is what
the plan itself says, a long stream of the same law.
The callers are Python and send a few hundred requests a second from a core: take a model of some milliseconds a row,
or they are what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from pathlib import Path

import numpy as np

from calibrant.progress import table
from calibrant.serve.callers.generator import Load, due_times, request_bytes, run_exactly
from calibrant.serve.planning.measure import measured_curve, measured_front, processor_seconds
from calibrant.serve.planning.simulator import Worker, answered, simulate
from calibrant.serve.processes.background import running

LOADS = (0.3, 0.6, 0.8, 0.95)
FIGURES = (50, 95, 99)


def one_round(path: Path, seconds: float) -> dict[float, dict[str, float]]:
    """By load, what was planned and what came."""
    session, curve = measured_curve(path)
    front = measured_front(session, curve)
    worker = Worker.of(curve, front)
    beside = f"front {1e6 * front.request:.0f} us, wake {1e6 * front.wake:.0f} us"
    print(f"curve {curve.said()}; cap {curve.cap}; {beside}; capacity {worker.capacity:.0f}/s", flush=True)
    cores = sorted(os.sched_getaffinity(0))
    arguments = ["--quiet", "--threads", "1", "--no-huge-pages", "--batch-cap", str(curve.cap)]
    found: dict[float, dict[str, float]] = {}
    try:
        os.sched_setaffinity(0, cores[:1])
        with running(path, arguments=arguments) as server:
            os.sched_setaffinity(0, cores[1:])
            inputs = [session.inputs[name].to_dict() for name in session.required]
            request = request_bytes(server.url, session.own_name, inputs, rows=1, binary=True)
            for share in LOADS:
                rate = share * worker.capacity
                load = Load(clients=256, seconds=seconds, rate=rate, at_random=True)
                before = processor_seconds(server.pid)
                outcome = run_exactly(server.url, request, load)
                spent = processor_seconds(server.pid) - before
                arrivals = np.array(list(due_times(load, rate)))
                skipped = int((arrivals < load.warm_seconds).sum())
                same = answered(worker, arrivals, skip=skipped)
                law = simulate(worker, rate, requests=200_000)
                found[share] = {
                    "failed": outcome.failed + outcome.unanswered, "busy_real": spent / (seconds + load.warm_seconds),
                    "busy": same.busy,
                }  # fmt: skip
                for q in FIGURES:
                    real = outcome.percentile(q) or float("nan")
                    found[share][f"p{q}_real"] = real
                    found[share][f"p{q}"] = 1e3 * same.percentile(q)
                    found[share][f"p{q}_law"] = 1e3 * law.percentile(q)
                    found[share][f"p{q}_off"] = 1e3 * same.percentile(q) / real - 1
    finally:
        os.sched_setaffinity(0, cores)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rounds = [one_round(options.model, options.seconds) for _ in range(options.rounds)]
    rows, report = [], {}
    for share in LOADS:
        mid = {key: statistics.median(r[share][key] for r in rounds) for key in rounds[0][share]}
        report[f"{share:g}"] = mid
        told = [f"{mid[f'p{q}']:.1f} / {mid[f'p{q}_real']:.1f} ({100 * mid[f'p{q}_off']:+.0f} %)" for q in FIGURES]
        rows.append(
            (f"{100 * share:.0f} %", *told, f"{mid['busy']:.2f} / {mid['busy_real']:.2f}", f"{mid['failed']:.0f}")
        )
    print(table(("load", *(f"p{q} ms, planned / real" for q in FIGURES), "busy", "failed"), rows, left=1))
    if options.json:
        options.json.write_text(json.dumps({"loads": report, "rounds": rounds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
