"""What folding, runtime knobs and the input prologue cost: node counts and interleaved CPU times, best of repeats.

    python bench/export_fold.py --model tf_efficientnet_lite0 --json fold.json

The plain model is the same file with nothing folded in. One thread; ratios, because machines are noisy. The best is the
lowest tenth of the repeats: a single lucky run, such as a clock that was raised for a moment, decides nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import timm
import torch

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.export import Interface, Trained, export_onnx
from calibrant.export.checks.parity import session
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import table

CLASSES = 100


def variants() -> dict[str, dict[str, object]]:
    rng = np.random.default_rng(0)
    prior = rng.dirichlet(np.ones(CLASSES) * 2)
    matrix = np.eye(CLASSES) + rng.normal(0, 0.02, (CLASSES, CLASSES))
    common = {"trained": Trained(rng.uniform(0.6, 1.6, CLASSES)), "train_prior": prior, "adjust": 1.0}
    zero = [0.0] * CLASSES

    def cal(method: str, **parameters: object) -> Calibrator:
        return Calibrator(method, CLASSES, parameters)

    knots = [np.linspace(0, 1, 16).tolist()] * CLASSES
    return {
        "plain": {},
        "temperature + tau + prior": {**common, "calibrator": cal("temperature", temperature=1.4)},
        "vector + tau + prior": {
            **common, "calibrator": cal("vector", weights=rng.uniform(0.7, 1.3, CLASSES).tolist(), bias=zero),
        },
        "matrix + tau + prior": {**common, "calibrator": cal("matrix", matrix=matrix.tolist(), bias=zero)},
        "dirichlet + tau + prior": {**common, "calibrator": cal("dirichlet", matrix=matrix.tolist(), bias=zero)},
        "isotonic, 16 knots": {**common, "calibrator": cal("isotonic", x=knots, y=knots, kind="linear")},
        "runtime knobs": {**common, "calibrator": cal("temperature", temperature=1.4), "knobs": "runtime"},
        "energy score": {**common, "interface": Interface(ood={"kind": "energy"})},
        "float32 NCHW input": {"interface": Interface(input="float32")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tf_efficientnet_lite0")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = timm.create_model(options.model, num_classes=CLASSES).eval()
    size = network.default_cfg["input_size"][-1]
    names = [f"c{i}" for i in range(CLASSES)]
    rng = np.random.default_rng(1)
    found: dict[str, dict[str, float]] = {}
    times: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        runs, feeds = {}, {}
        for name, settings in variants().items():
            path = Path(folder) / f"{len(runs)}.onnx"
            export_onnx(
                network,
                path,
                class_names=names,
                preprocessing=Preprocessing((size, size), size),
                comparison=None,
                **settings,
            )  # type: ignore[arg-type]
            runs[name] = session(path)
            floats = settings.get("interface", Interface()).input == "float32"  # type: ignore[attr-defined]
            shape = (8, 3, size, size) if floats else (8, size, size, 3)
            images = rng.integers(0, 256, shape).astype(np.float32 if floats else np.uint8)
            feeds[name] = [{"images": images[:1]}, {"images": images}]
            found[name] = {"nodes": len(OnnxFile.open(path).nodes)}
        order, end = list(runs), time.perf_counter() + options.seconds
        while time.perf_counter() < end:
            rng.shuffle(order)
            for name in order:
                for feed, key, repeats in zip(feeds[name], ("batch 1", "batch 8"), (6, 1), strict=True):
                    for _ in range(repeats):
                        start = time.process_time()
                        runs[name].run(["probabilities"], feed)
                        times.setdefault((name, key), []).append(time.process_time() - start)
    for (name, key), spent in times.items():
        found[name][key] = float(np.quantile(spent, 0.1))
    plain = found["plain"]
    rows = [
        (name, int(r["nodes"]), f"{r['batch 1'] / plain['batch 1']:.3f}", f"{r['batch 8'] / plain['batch 8']:.3f}")
        for name, r in found.items()
    ]
    print(f"{options.model}, {CLASSES} classes, one thread: {1e3 * plain['batch 1']:.2f} ms at batch 1")
    print(table(["file", "nodes", "time, batch 1", "time, batch 8"], rows))
    if options.json:
        options.json.write_text(json.dumps({"model": options.model, "files": found}, indent=2))


if __name__ == "__main__":
    main()
