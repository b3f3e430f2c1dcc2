"""Calibrators of this package beside others', at 50 to 5,000 rows.

    python bench/calibrators.py --logits DIR --environment DIR2 [--splits 5] [--sizes 50,200] [--sets r20] --json OUT

Makes an environment DIR2 of its own with probmetrics, netcal and scikit-learn where there is none (it borrows the
packages of the one that runs this), and runs itself there. Sets: every 10-class file of DIR with labels; `tail100` and
`tail1000`, classifiers whose class means were learned from a long tail (100 to 1) and whose logits are twice too sure;
`net5-same`, `net5-shift` and the others of `simulated_networks.py`, and `dev-lite-clean` and the others that
`real_networks.py` put into DIR, on which `auto` was tuned (not by default).
Each split draws n rows for the fit; all others (5,000 fresh ones where simulated) judge. NLL, Brier score, accuracy and
ECE with 15 bins are the metrics of CalArena (arXiv 2605.30188), as are the win rates over experiments at the end;
seconds are process time on one thread, fit only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

FILES = {
    "resnet20-jpeg": "cifar10jpeg75_resnet20_test.npz",
    "resnet56-jpeg": "cifar10jpeg75_resnet56_test.npz",
    "resnet20-clean": "cifar10clean846_resnet20.npz",
    "resnet56-clean": "cifar10clean846_resnet56.npz",
}
PEERS = ("sms", "svs", "logistic-mix", "isotonic-mix", "ts-mix", "ivap")
HEAVY = 100  # classes from which some of the methods that are fitted class by class, or as full maps, are left out
OURS = (
    "auto", "temperature", "structured", "structured-vector", "vector", "classwise-temperature", "matrix", "dirichlet",
    "ensemble-temperature", "adaptive-temperature", "order-preserving", "beta", "spline", "venn-abers", "isotonic",
    "histogram",
)  # fmt: skip
TAIL_OURS = ("auto", "temperature", "structured-vector", "vector", "order-preserving", "adaptive-temperature", "spline")
Rows = tuple[np.ndarray, np.ndarray]


def simulated(classes: int, rows: int, seed: int) -> Rows:
    """Normal classes around means learned from 200 pictures of the most common class down to 2 of the rarest."""
    rng = np.random.default_rng(12345 + classes)
    shares = 100.0 ** (-np.arange(classes) / (classes - 1))
    shares /= shares.sum()
    means = rng.normal(0, {100: 0.35, 1000: 0.5}[classes], (classes, 64))
    pictures = np.maximum(1, np.round(200 * shares / shares[0]))
    learned = means + rng.normal(size=means.shape) / np.sqrt(pictures)[:, None]
    bias = rng.normal(0, 0.3, classes)
    rng = np.random.default_rng(seed)
    y = rng.choice(classes, rows, p=shares)
    x = means[y] + rng.normal(size=(rows, 64))
    z = 2.0 * (x @ learned.T - 0.5 * (learned**2).sum(1) + np.log(shares)) + bias
    return z.astype(np.float32), y


def split(name: str, folder: Path, rows: int, seed: int) -> tuple[Rows, Rows] | None:
    if name.startswith("tail"):
        classes = int(name[4:])
        return simulated(classes, rows, 1000 + seed), simulated(classes, 5000, 5000 + seed)
    if name.startswith("net"):
        from bench.simulated_networks import network

        made, rows_like = name.split("-")
        z, y = network(made)[rows_like]
    else:
        with np.load(folder / FILES.get(name, f"{name}.npz")) as file:
            z, y = file["logits"], file["labels"].astype(np.int64)
    if len(y) - rows < 500:
        return None
    order = np.random.default_rng(seed).permutation(len(y))
    return (z[order[:rows]], y[order[:rows]]), (z[order[rows:]], y[order[rows:]])


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z.astype(np.float64) - z.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def ours(method: str) -> Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    from calibrant.calibration import fit

    return lambda z, y: fit(method, z, y).probabilities


def probmetrics(method: str) -> Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    from probmetrics.calibrators import get_calibrator

    def fitted(z: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        mixed = method == "isotonic-mix"
        made = get_calibrator("isotonic", calibrate_with_mixture=True) if mixed else get_calibrator(method)
        made.fit(softmax(z), y)
        return lambda fresh: np.asarray(made.predict_proba(softmax(fresh)), np.float64)

    return fitted


def sklearn_temperature(z: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """CalibratedClassifierCV(method="temperature") around a classifier that hands the logits on."""
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Logits(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, x: Any, y: Any) -> Logits:
            self.classes_ = np.arange(x.shape[1])
            return self

        def decision_function(self, x: Any) -> Any:
            return x

        def predict(self, x: Any) -> Any:
            return x.argmax(axis=1)

    made = CalibratedClassifierCV(FrozenEstimator(Logits().fit(z, y)), method="temperature").fit(z, y)
    return lambda fresh: np.asarray(made.predict_proba(fresh), np.float64)


def netcal_temperature(z: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from netcal.scaling import TemperatureScaling

    made = TemperatureScaling()
    made.fit(softmax(z), y)
    return lambda fresh: np.asarray(made.transform(softmax(fresh)), np.float64)


def scores(q: np.ndarray, y: np.ndarray) -> dict[str, float]:
    q = np.maximum(q, 1e-12)
    q /= q.sum(axis=1, keepdims=True)
    here = np.arange(len(y))
    own, top = q[here, y], q.max(axis=1)
    right = q.argmax(axis=1) == y
    bins = np.minimum((top * 15).astype(int), 14)
    gap = np.abs(np.bincount(bins, top, 15) - np.bincount(bins, right, 15)).sum() / len(y)
    brier = (q**2).sum(axis=1) - 2 * own + 1
    return {
        "nll": float(-np.log(own).mean()), "brier": float(brier.mean()), "accuracy": float(right.mean()),
        "ece": float(gap),
    }  # fmt: skip


def methods(classes: int) -> dict[str, Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]]:
    found = {m: ours(m) for m in (OURS if classes < HEAVY else TAIL_OURS)}
    if classes >= HEAVY:
        found |= {m: ours(m) for m in ("structured", "venn-abers")}
    if classes > HEAVY:
        found |= {m: ours(m) for m in ("isotonic", "beta")}
    found |= {f"probmetrics {m}": probmetrics(m) for m in PEERS if classes <= HEAVY or m in ("svs", "ts-mix")}
    return {**found, "scikit-learn temperature": sklearn_temperature, "netcal temperature": netcal_temperature}


def measure(
    sets: list[str], sizes: list[int], folder: Path, splits: int, only: list[str] | None = None
) -> Iterator[dict[str, Any]]:
    for name in sets:
        for n in sizes:
            for seed in range(splits):
                drawn = split(name, folder, n, seed)
                if drawn is None:
                    continue
                (z, y), (fresh, truth) = drawn
                for method, fit in methods(z.shape[1]).items():
                    if only is not None and method not in only:
                        continue
                    record: dict[str, Any] = {"set": name, "n": n, "split": seed, "method": method}
                    start = time.process_time()
                    try:
                        apply = fit(z, y)
                        seconds = time.process_time() - start
                        yield {**record, **scores(apply(fresh), truth), "seconds": round(seconds, 3)}
                    except Exception as error:  # noqa: BLE001  a peer's failure is a result
                        yield {**record, "failed": f"{type(error).__name__}: {error}"[:120]}
                print(name, n, seed, file=sys.stderr, flush=True)


def paired_error(first: dict[int, float], second: dict[int, float]) -> float | None:
    """Standard error of the mean difference over the splits that both have."""
    both = [first[k] - second[k] for k in first if k in second]
    return float(np.std(both, ddof=1) / np.sqrt(len(both))) if len(both) > 1 else None


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over splits, auto minus the best single, and the share of other methods that each one beats."""
    means: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    of_split: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    for r in records:
        if "nll" in r:
            of_split[r["set"], r["n"], r["method"]][r["split"]] = r["nll"]
    for (name, n, method), values in of_split.items():
        means[name, n][method] = float(np.mean(list(values.values())))
    rows, won = [], defaultdict(list)
    for (name, n), found in means.items():
        others = {m: v for m, v in found.items() if m != "auto"}
        best = min(others, key=lambda m: others[m])
        own = {m: v - found["temperature"] for m, v in found.items() if " " not in m and m != "auto"}
        worst = max(own, key=lambda m: own[m])
        rows.append({
            "set": name, "n": n, "auto": found["auto"], "temperature": found["temperature"], "best": best,
            "best_nll": others[best], "auto_minus_best": found["auto"] - others[best],
            "best_peer_nll": min((v for m, v in found.items() if " " in m), default=None), "worst_own": worst,
            "worst_own_minus_temperature": own[worst],
            "auto_minus_best_error": paired_error(of_split[name, n, "auto"], of_split[name, n, best]),
        })  # fmt: skip
        for m, v in found.items():
            won[m].append(float(np.mean([v < w for k, w in found.items() if k != m])))
    return {"rows": rows, "win_rate": {m: float(np.mean(v)) for m, v in sorted(won.items())}}


def environment(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        inside = next((folder / "lib").glob("python*")) / "site-packages"
        borrowed = [p for p in sys.path if p.endswith("site-packages")]
        (inside / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
        wanted = ["probmetrics", "pytorch-minimize", "numba", "scikit-learn>=1.8", "venn-abers"]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--environment", type=Path)
    parser.add_argument("--sets", default=",".join([*FILES, "tail100", "tail1000"]))
    parser.add_argument("--sizes", default="50,200,1000,5000")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--methods", help="only these, separated by commas")
    parser.add_argument("--json", type=Path, required=True, help="what it holds and is not made again stays")
    options = parser.parse_args()
    if options.environment is not None:
        python = environment(options.environment)
        rest = [a for a in sys.argv[1:]]
        at = rest.index("--environment")
        root = str(Path(__file__).resolve().parents[1])
        code = subprocess.run([python, __file__, *rest[:at], *rest[at + 2 :]], env={**os.environ, "PYTHONPATH": root})
        raise SystemExit(code.returncode)
    warnings.simplefilter("ignore")
    import logging

    import torch

    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    records = json.loads(options.json.read_text())["records"] if options.json.exists() else []
    sizes, only = [int(n) for n in options.sizes.split(",")], options.methods and options.methods.split(",")
    key = ("set", "n", "split", "method")
    made = list(measure(options.sets.split(","), sizes, options.logits, options.splits, only))
    again = {tuple(r[k] for k in key) for r in made}
    records = [r for r in records if tuple(r[k] for k in key) not in again] + made
    found = summary(records)
    options.json.write_text(json.dumps({**found, "records": records}, indent=1))
    for row in found["rows"]:
        print("| " + " | ".join(f"{v:.4f}" if isinstance(v, float) else str(v) for v in row.values()) + " |")
    print({m: round(v, 2) for m, v in found["win_rate"].items()})


if __name__ == "__main__":
    main()
