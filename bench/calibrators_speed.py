"""Seconds of every fit at 5,000 rows and 10, 100 and 1,000 classes, beside probmetrics' SMS; and of `evaluate`.

    python bench/calibrators_speed.py --environment DIR [--classes 10,100,1000] [--methods auto,matrix] [--fits-only]
        [--json OUT]

DIR is the environment of `calibrators.py`, made where there is none. Process time on one thread, the best of two
interleaved repeats (one at 1,000 classes, where SMS takes minutes and is left out). Rows: a simulated network of 10
classes and the simulated tails of `calibrators.py`. `evaluate`: statistics in passes of max + log-sum-exp, and the
constant after them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.calibration import best_of, made, plain_pass
from bench.calibrators import OURS, environment, ours, probmetrics, simulated

ROWS = 5000


def rows_of(classes: int) -> tuple[np.ndarray, np.ndarray]:
    if classes in (100, 1000):
        return simulated(classes, ROWS, 1000)
    from bench.simulated_networks import network

    z, y = network("net10a")["same"]
    return z[:ROWS], y[:ROWS]


def fits(classes: int, methods: list[str], repeats: int) -> dict[str, float]:
    z, y = rows_of(classes)
    calls: dict[str, Callable[[], Any]] = {m: (lambda m=m: ours(m)(z, y)) for m in methods}
    if classes < 1000:
        calls["probmetrics sms"] = lambda: probmetrics("sms")(z, y)
        calls["probmetrics sms"]()  # its imports
    ours("auto")(z[:100], y[:100])
    return best_of(calls, repeats)


def evaluation(rows: int, classes: int) -> dict[str, float]:
    from calibrant.calibration.evaluation import evaluate
    from calibrant.calibration.statistics.accumulate import statistics_of

    z, y = made(rows, classes)
    found = statistics_of(z, y)
    calls = {
        "pass": lambda: plain_pass(z),
        "statistics": lambda: statistics_of(z, y),
        "evaluate": lambda: evaluate(found),
    }
    best = best_of(calls, 2)
    return {"rows": rows, "classes": classes, "passes": best["statistics"] / best["pass"], "constant": best["evaluate"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--classes", default="10,100,1000")
    parser.add_argument("--methods", default=",".join(OURS))
    parser.add_argument("--fits-only", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.environment is not None:
        at = sys.argv.index("--environment")
        rest = [*sys.argv[1:at], *sys.argv[at + 2 :]]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        raise SystemExit(subprocess.run([environment(options.environment), __file__, *rest], env=env).returncode)
    warnings.simplefilter("ignore")
    import logging

    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    block: dict[str, Any] = {"fits": {}, "evaluate": []}
    for classes in (int(c) for c in options.classes.split(",")):
        start = time.time()
        found = fits(classes, options.methods.split(","), 1 if classes >= 1000 else 2)
        sms = found.get("probmetrics sms")
        block["fits"][str(classes)] = found
        for method, seconds in sorted(found.items(), key=lambda item: item[1]):
            beside = "" if sms is None else f"{seconds / sms:.2f} of SMS"
            print(f"| {classes} | {method} | {seconds:.3f} s | {beside} |", flush=True)
        print(f"{classes} classes: {time.time() - start:.0f} s", file=sys.stderr)
    for rows, classes in () if options.fits_only else ((400_000, 100), (5000, 100), (5000, 1000)):
        found_here = evaluation(rows, classes)
        block["evaluate"].append(found_here)
        print(f"| evaluate {rows:,} x {classes} | {found_here['passes']:.1f} passes + {found_here['constant']:.1f} s |")
    if options.json:
        options.json.write_text(json.dumps(block, indent=1) + "\n")


if __name__ == "__main__":
    main()
