"""Nodes and microseconds that each calibrator adds to a deployed file, and how far its graph is from its numbers.

    python bench/calibrator_graphs.py [--classes 10] [--seconds 30] [--json OUT]

The tail of a file alone (1,280 features, a classifier, the calibrator, softmax), each method fitted on 1,000 made rows,
in onnxruntime on one thread at batch 1 and 8, interleaved in random order; the mean of the quickest tenth, minus that
of the tail without a calibrator.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.calibration import METHODS, Calibrator, fit
from calibrant.calibration.calibrators.by_group import Correction, parameters_of
from calibrant.calibration.softmax import softmax
from calibrant.export.checks.parity import session
from calibrant.export.graph.fold import tail_steps
from calibrant.export.graph.tail import Tail, standalone

FEATURES, ROWS = 1280, 1000
ALIKE = ("bbq", "enir", "mixture", "by-group")  # the first two are isotonic's graph; mixture is what auto makes


def fitted(classes: int) -> tuple[dict[str, Calibrator | None], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 1, (classes, FEATURES)) / 12
    bias = rng.normal(0, 0.3, classes)
    x = rng.normal(size=(ROWS, FEATURES))
    z = x @ weight.T
    y = (softmax(z / 1.5 + bias).cumsum(axis=1) > rng.random((ROWS, 1))).argmax(axis=1)
    found: dict[str, Calibrator | None] = {"none": None}
    found |= {m: fit(m, z, y, features=x) for m in METHODS if m not in ALIKE}
    found["structured on logits"] = fit("structured", z, y, inputs="logits")
    common = found["temperature"]
    assert common is not None  # noqa: S101
    correction = Correction(1.1, bias - bias.mean())
    found["by-group"] = Calibrator(
        "by-group", classes, parameters_of("temperature", common.parameters, correction), {}, {}
    )
    return found, weight, rng.normal(size=x.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    calibrators, weight, x = fitted(options.classes)
    runs: dict[str, Any] = {}
    found: dict[str, dict[str, float]] = {}
    for name, calibrator in calibrators.items():
        steps = tail_steps(options.classes, calibrator=calibrator)
        tail = Tail(options.classes, "features", weight, np.zeros(options.classes), steps, feature_dim=FEATURES)
        runs[name] = session(standalone(tail))
        fresh = x.astype(np.float32)
        out = runs[name].run(["probabilities"], {"features": fresh})[0]
        z = fresh.astype(np.float64) @ weight.T
        right = softmax(z) if calibrator is None else calibrator.probabilities(z, fresh)
        away = np.abs(out - right).max(axis=1)
        edit = tail.edit([])
        found[name] = {
            "nodes": len(edit.nodes), "away_999": float(np.quantile(away, 0.999)), "away": float(away.max())
        }  # fmt: skip
    rng, times = np.random.default_rng(1), {(n, b): [] for n in runs for b in (1, 8)}
    feeds = {b: {"features": x[:b].astype(np.float32)} for b in (1, 8)}
    end = time.perf_counter() + options.seconds
    names = list(runs)
    while time.perf_counter() < end:
        for name in rng.permutation(names):
            for b, feed in feeds.items():
                start = time.perf_counter()
                runs[name].run(["probabilities"], feed)
                times[name, b].append(time.perf_counter() - start)
    quick = {k: float(np.mean(np.sort(v)[: max(1, len(v) // 10)])) * 1e6 for k, v in times.items()}
    base = found["none"]["nodes"]
    for name, row in found.items():
        row |= {"more_nodes": row["nodes"] - base, **{f"us_{b}": quick[name, b] - quick["none", b] for b in (1, 8)}}
        more = f"{row['more_nodes']:.0f} | {row['us_1']:+.1f} | {row['us_8']:+.1f} | {row['away_999']:.1e}"
        print(f"| {name} | {more} | {row['away']:.1e} |")
    print(f"without: {quick['none', 1]:.1f} and {quick['none', 8]:.1f} us, {len(times['none', 1])} repeats")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
