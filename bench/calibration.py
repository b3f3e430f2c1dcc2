"""Cost of calibration: metrics and the temperature fit against one streaming pass, and memory.

    python bench/calibration.py [--json PATH] [--quick] [--netcal] [--rss]

One thread, CPU time, the best of interleaved repeats. "One pass" is the leanest reading of the logits that numpy can
do: in chunks, max and log-sum-exp of each row, in float64; "plain" with rows as they lie, "lean" with classes first,
which is four times faster at ten classes. Extra memory is the peak that tracemalloc sees above the logits themselves.
Peak RSS is taken in a fresh process that reads Parquet shards.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from calibrant.calibration.calibrators.temperature import minimise_nll
from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.progress import table


def made(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident logits: labels follow softmax(z / 2)."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, classes), dtype=np.float32) * 2
    labels = rng.integers(0, classes, rows)
    z[np.arange(rows), labels] += rng.gamma(2.0, 2.0 + 0.3 * np.log(classes), rows).astype(np.float32)
    z *= 2
    return z, labels


def plain_pass(z: np.ndarray) -> float:
    total = 0.0
    rows = max(1, (1 << 16) // z.shape[1])
    for start in range(0, len(z), rows):
        part = z[start : start + rows].astype(np.float64)
        top = part.max(axis=1)
        part -= top[:, None]
        np.exp(part, out=part)
        total += float((np.log(part.sum(axis=1)) + top).sum())
    return total


def lean_pass(z: np.ndarray) -> float:
    if z.shape[1] > 64:
        return plain_pass(z)
    total = 0.0
    rows = max(1, (1 << 15) // z.shape[1])
    for start in range(0, len(z), rows):
        part = z[start : start + rows].T.astype(np.float64, order="C")
        top = part.max(axis=0)
        part -= top
        np.exp(part, out=part)
        total += float((np.log(part.sum(axis=0)) + top).sum())
    return total


def best_of(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """CPU seconds of each call, the best of interleaved repeats."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.process_time()
            call()
            found[name] = min(found[name], time.process_time() - start)
    return found


def extra_memory(call: Callable[[], Any]) -> int:
    call()  # what is made once for the process is not the call's
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def netcal_seconds(z: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """CPU time of netcal's temperature fit on float64 probabilities, and the T that it finds."""
    from calibrant.calibration.calibrators.one_vs_rest.binning import netcal_class, quiet
    from calibrant.calibration.softmax import softmax

    probs = softmax(z)
    with quiet():
        model = netcal_class("scaling", "TemperatureScaling")()
        start = time.process_time()
        model.fit(probs, labels)
        seconds = time.process_time() - start
    return seconds, float(1 / np.asarray(model.temperature).ravel()[0])


def costs(rows: int, classes: int, repeats: int, netcal: bool) -> dict[str, Any]:
    z, labels = made(rows, classes)
    best = best_of(
        {
            "plain": lambda: plain_pass(z), "lean": lambda: lean_pass(z), "metrics": lambda: statistics_of(z, labels),
            "temperature": lambda: minimise_nll(z, labels),
        },
        repeats,
    )  # fmt: skip
    statistics = statistics_of(z, labels)
    evaluated = best_of({"evaluate": lambda: evaluate(statistics)}, 1)["evaluate"]
    found = minimise_nll(z, labels)
    out: dict[str, Any] = {
        "rows": rows, "classes": classes, **best, "numbers_and_intervals": evaluated,
        "metrics_over_plain": best["metrics"] / best["plain"], "metrics_over_lean": best["metrics"] / best["lean"],
        "temperature_passes": found.passes, "temperature_over_plain": best["temperature"] / best["plain"],
        "memory_metrics": extra_memory(lambda: statistics_of(z, labels)) / z.nbytes,
        "memory_temperature": extra_memory(lambda: minimise_nll(z, labels)) / z.nbytes, "T": found.temperature,
    }  # fmt: skip
    if netcal:
        out["netcal"], out["netcal_T"] = netcal_seconds(z, labels)
        out["netcal_over_ours"] = out["netcal"] / best["temperature"]
    return out


def peak_rss(rows: int, classes: int = 10, shard_rows: int = 500_000) -> dict[str, float]:
    """Peak RSS of a fresh process that makes the statistics of Parquet shards."""
    from calibrant.artifacts.predictions import PredictionsWriter, Source

    with tempfile.TemporaryDirectory() as folder:
        for i in range(max(1, rows // shard_rows)):
            n = min(shard_rows, rows)
            z, labels = made(n, classes, seed=i)
            with PredictionsWriter(
                Path(folder) / f"{i:03d}.parquet", Source(tuple(map(str, range(classes))))
            ) as writer:
                for start in range(0, n, 100_000):
                    part = slice(start, start + 100_000)
                    writer.append([f"{i}-{j}" for j in range(start, min(n, start + 100_000))], labels[part], z[part])
        found = subprocess.run(
            [sys.executable, __file__, "--read", folder], capture_output=True, text=True, check=True
        ).stdout  # fmt: skip
    measured: dict[str, float] = json.loads(found)
    return measured


def read(folder: Path) -> None:
    from calibrant.artifacts.predictions import PredictionsFile
    from calibrant.calibration.statistics.sidecar import compute

    file = PredictionsFile.open(folder)
    start = time.process_time()
    s = compute(file)
    # Not ru_maxrss, which a child takes over from the process that started it.
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]
    block = {
        "rows": s.rows, "seconds": time.process_time() - start,
        "rss_mb": peak,
    }  # fmt: skip
    print(json.dumps(block))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--netcal", action="store_true", help="compare with netcal's temperature fit (slow)")
    parser.add_argument("--rss", action="store_true", help="peak RSS at 1e6 and 1e7 rows from Parquet shards")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(arguments.read)
        return
    share = 10 if arguments.quick else 1
    results = [costs(n // share, c, 5, arguments.netcal) for n, c in ((1_000_000, 10), (50_000, 1000))]
    rows = []
    for r in results:
        rows.append([
            f"{r['rows']:,} x {r['classes']}", f"{1e3 * r['plain']:.0f} / {1e3 * r['lean']:.0f} ms",
            f"{1e3 * r['metrics']:.0f} ms", f"{r['metrics_over_plain']:.2f} / {r['metrics_over_lean']:.2f}",
            f"{r['temperature_passes']}", f"{1e3 * r['temperature']:.0f} ms", f"{r['temperature_over_plain']:.2f}",
            f"{100 * r['memory_metrics']:.1f} % / {100 * r['memory_temperature']:.1f} %",
            f"{r['netcal']:.1f} s = {r['netcal_over_ours']:.0f}x" if "netcal" in r else "-",
            f"{1e3 * r['numbers_and_intervals']:.0f} ms",
        ])  # fmt: skip
    head = ("logits", "one pass plain/lean", "all metrics", "ratio", "T passes", "T fit", "ratio", "extra memory",
            "netcal T fit", "intervals")  # fmt: skip
    print(table(head, rows))
    if arguments.rss:
        measured = [peak_rss(n // share) for n in (1_000_000, 10_000_000)]
        print(table(("rows from shards", "CPU s", "peak RSS MB"),
                    [(f"{m['rows']:,}", f"{m['seconds']:.1f}", f"{m['rss_mb']:.0f}") for m in measured]))  # fmt: skip
        results += measured
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
