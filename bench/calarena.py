"""The protocol of CalArena (arXiv 2605.30188) on what can be had without its data.

    python bench/calarena.py --logits DIR --environment ENV [--only auto,temperature] --json OUT

There: one calibration and one test part of each (dataset, model) pair, every method fitted once on the first, log-loss,
Brier score, accuracy and ECE with 15 bins on the second; a method's win rate is the share of the other methods that it
beats in an experiment, its mean over experiments gets an interval by a bootstrap of experiments; fit and prediction are
timed together. Improvement is that of a proper score over the base model. Differs: its files (1.7 GB) are on a host
that was out of reach; experiments here are five models of scikit-learn on each of `digits` and two made tables, and
four networks on CIFAR-10. Models' probabilities go in, as there; ours get their logarithms.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.calibrators import FILES, OURS, environment, ours, probmetrics, scores, softmax

PEERS = ("sms", "svs", "temp-scaling", "isotonic", "ivap")
Experiment = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # probabilities and labels to fit on, and to judge
FLOOR = 1e-12


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits, make_classification

    x, y = load_digits(return_X_y=True)
    yield "digits", x, y
    for classes, seed in ((4, 1), (8, 2)):
        x, y = make_classification(
            3000, 20, n_informative=8, n_classes=classes, n_clusters_per_class=2, flip_y=0.05, random_state=seed
        )
        yield f"table{classes}", x, y


def models(seed: int) -> dict[str, Any]:
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return {
        "linear": make_pipeline(StandardScaler(), LogisticRegression(C=10.0, max_iter=500)),
        "forest": RandomForestClassifier(200, random_state=seed),
        "extra-trees": ExtraTreesClassifier(200, random_state=seed),
        "boosting": HistGradientBoostingClassifier(max_iter=60, random_state=seed),
        "network": make_pipeline(StandardScaler(), MLPClassifier((64,), max_iter=200, random_state=seed)),
    }


def experiments(logits: Path) -> Iterator[tuple[str, Experiment]]:
    for table, x, y in tables():
        order = np.random.default_rng(0).permutation(len(y))
        train, fitted, judged = np.split(order, [len(y) * 2 // 5, len(y) * 7 // 10])
        for name, model in models(0).items():
            model.fit(x[train], y[train])
            p = model.predict_proba(x)
            yield f"{table}-{name}", (p[fitted], y[fitted], p[judged], y[judged])
    for name, file in FILES.items():
        with np.load(logits / file) as data:
            p, y = softmax(data["logits"]), data["labels"].astype(np.int64)
        order = np.random.default_rng(0).permutation(len(y))
        half = order[: len(y) // 2], order[len(y) // 2 :]
        yield name, (p[half[0]], y[half[0]], p[half[1]], y[half[1]])


def run(logits: Path, only: list[str]) -> list[dict[str, Any]]:
    records = []
    for name, (p, y, fresh, truth) in experiments(logits):
        z, new = (np.log(np.maximum(q, FLOOR)) for q in (p, fresh))
        records.append({"experiment": name, "method": "base model", **scores(fresh.copy(), truth), "seconds": 0.0})
        for method in only:
            own = not method.startswith("probmetrics ")
            make = ours(method) if own else probmetrics(method.removeprefix("probmetrics "))
            start = time.process_time()
            try:
                # `probmetrics` of bench/calibrators.py takes logits and hands their softmax on
                q = make(z, y)(new)
            except Exception as error:  # noqa: BLE001  a failure is a result
                print(name, method, error, file=sys.stderr)
                continue
            seconds = time.process_time() - start
            records.append({"experiment": name, "method": method, **scores(q, truth), "seconds": seconds})
        print(name, len(y), len(truth), file=sys.stderr, flush=True)
    return records


def win_rates(records: list[dict[str, Any]], metric: str) -> dict[str, tuple[float, float, float]]:
    """Mean over experiments of the share of others beaten (ties half), and its interval by a bootstrap."""
    names = sorted({r["experiment"] for r in records})
    methods = sorted({r["method"] for r in records})
    value = {(r["experiment"], r["method"]): r[metric] * (-1 if metric == "accuracy" else 1) for r in records}
    table = np.full((len(names), len(methods)), np.nan)
    for i, e in enumerate(names):
        here = {m: value[e, m] for m in methods if (e, m) in value}
        for j, m in enumerate(methods):
            if m in here:
                others = [v for k, v in here.items() if k != m]
                table[i, j] = np.mean([(here[m] < v) + 0.5 * (here[m] == v) for v in others])
    drawn = np.random.default_rng(0).integers(0, len(names), (2000, len(names)))
    spread = np.nanquantile(np.nanmean(table[drawn], axis=1), [0.025, 0.975], axis=0)
    mean = np.nanmean(table, axis=0)
    return {m: (float(mean[j]), float(spread[0, j]), float(spread[1, j])) for j, m in enumerate(methods)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--only", default=",".join([*OURS, *(f"probmetrics {p}" for p in PEERS)]))
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    if options.environment is not None:
        at = sys.argv.index("--environment")
        rest = [*sys.argv[1:at], *sys.argv[at + 2 :]]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        raise SystemExit(subprocess.run([environment(options.environment), __file__, *rest], env=env).returncode)
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    records = run(options.logits, options.only.split(","))
    rates = {metric: win_rates(records, metric) for metric in ("nll", "brier", "ece", "accuracy")}
    base = {r["experiment"]: r["nll"] for r in records if r["method"] == "base model"}
    gains: dict[str, list[float]] = {}
    for r in records:
        gains.setdefault(r["method"], []).append(base[r["experiment"]] - r["nll"])
    options.json.write_text(json.dumps({"win_rates": rates, "records": records}, indent=1) + "\n")
    for method in sorted(gains, key=lambda m: -rates["nll"][m][0]):
        mean, low, high = rates["nll"][method]
        seconds = np.mean([r["seconds"] for r in records if r["method"] == method])
        others = " | ".join(f"{rates[m][method][0]:.2f}" for m in ("brier", "ece", "accuracy"))
        print(
            f"| {method} | {mean:.2f} ({low:.2f} .. {high:.2f}) | {others} | {np.mean(gains[method]):+.4f} "
            f"| {np.median(gains[method]):+.4f} | {min(gains[method]):+.4f} | {seconds:.2f} | {len(gains[method])} |"
        )


if __name__ == "__main__":
    main()
