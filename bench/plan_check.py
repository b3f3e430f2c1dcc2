"""What `calibrant plan` simulates beside what the server does: 30, 60, 80 and 95 % of its capacity.

    python bench/plan_check.py MODEL.onnx [--seconds 20] [--rounds 3]

The server has one core, its callers another; requests of one row come at random, the simulation gets a stream of the
same law. The callers are Python and send a few hundred requests a second from a core: take a model of some
milliseconds a row, or they are what is measured. Rounds of all loads take turns, and a figure is the median of the
rounds, since a machine that is not quiet takes from every one of them. How quiet it is says the way there and back of a
request that needs no run, from callers that sleep in between: it is in every real figure and in no planned one.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import statistics
import time
from pathlib import Path
from urllib.parse import urlsplit

from calibrant.serve.callers.generator import Load, request_bytes, run
from calibrant.serve.planning.measure import measured_curve, measured_front, processor_seconds
from calibrant.serve.planning.simulator import Worker, simulate
from calibrant.serve.processes.background import running

LOADS = (0.3, 0.6, 0.8, 0.95)
FIGURES = (50, 95, 99)


def there_and_back(url: str, *, times: int = 100) -> float:
    """Milliseconds, the median."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    taken = []
    for _ in range(times):
        time.sleep(0.02)
        start = time.perf_counter()
        connection.request("GET", "/v2/health/live")
        connection.getresponse().read()
        taken.append(1e3 * (time.perf_counter() - start))
    connection.close()
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    session, curve = measured_curve(options.model)
    front = measured_front(session, curve)
    worker = Worker.of(curve, front)
    print(
        f"curve {curve.said()}; cap {curve.cap}; front {1e6 * front:.0f} us; capacity {worker.capacity:.0f}/s",
        flush=True,
    )
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    arguments = ["--quiet", "--threads", "1", "--no-huge-pages", "--batch-cap", str(curve.cap)]
    with running(options.model, arguments=arguments) as server:
        os.sched_setaffinity(0, cores[1:])
        inputs = [session.inputs[name].to_dict() for name in session.required]
        request = request_bytes(server.url, session.own_name, inputs, rows=1, binary=True)
        print(f"there and back {there_and_back(server.url):.2f} ms", flush=True)
        seen: dict[float, list[dict[str, float]]] = {share: [] for share in LOADS}
        for _ in range(options.rounds):
            for share in LOADS:
                load = Load(clients=256, seconds=options.seconds, rate=share * worker.capacity, at_random=True)
                before = processor_seconds(server.pid)
                outcome = asyncio.run(run(server.url, request, load))
                busy = (processor_seconds(server.pid) - before) / (options.seconds + load.warm_seconds)
                found = {f"p{q}": outcome.percentile(q) or float("nan") for q in FIGURES}
                seen[share].append({**found, "busy": busy, "failed": outcome.failed + outcome.unanswered})
    for share in LOADS:
        simulated = simulate(worker, share * worker.capacity, requests=200_000)
        row: dict[str, object] = {"load": share, "failed": sum(int(r["failed"]) for r in seen[share])}
        for q in FIGURES:
            real = statistics.median(r[f"p{q}"] for r in seen[share])
            planned = 1e3 * simulated.percentile(q)
            row[f"p{q}"] = f"{planned:.2f} ms planned, {real:.2f} ms real ({100 * (planned / real - 1):+.0f} %)"
        real = statistics.median(r["busy"] for r in seen[share])
        row["busy"] = f"{simulated.busy:.2f} planned, {real:.2f} real"
        print(json.dumps(row))


if __name__ == "__main__":
    main()
