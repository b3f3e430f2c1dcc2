"""How often the 95 % intervals hold the truth: every number that is shown with one, on models whose truth is known.

    python bench/coverage.py [--classes 2,10] [--rows 300,1000] [--shapes calibrated,over] [--tails 1,100]
        [--priors data,uniform] [--metric ece,classwise_ece] [--sims 100] [--jobs 1] [--json PATH] [--table]

A pool of images has logits and true probabilities; a data set is n rows drawn from it, each with a label drawn from its
true probabilities. So the truth is a sum over the pool, without error. Shapes: calibrated; over-confident (logits times
1.6); under-confident (times 0.7); bias (a shift for each class). Tail 100: the rarest class has a hundredth of the
rows of the commonest. Prior uniform: `evaluate(..., target_prior="uniform")`.

Results go into the JSON file after each cell (a population and a number of rows), and a cell that is in it with as
many simulations is not run again. `--table` prints the file as Markdown and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from calibrant.atomic import replacing
from calibrant.calibration.compare import compare
from calibrant.calibration.evaluation import calibration_errors, class_result, ranking, scores
from calibrant.calibration.intervals.classwise import measure_classwise
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.smooth import measure_smooth
from calibrant.calibration.metrics.ranking import area_under_risk_coverage, auroc_of
from calibrant.calibration.metrics.smooth import smooth_ece_of
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.bins import equal_mass_index, equal_width_index
from calibrant.shares import class_weights

BINS = 15
SHAPES = ("calibrated", "over", "under", "bias")
COMPARED = ("accuracy", "nll", "brier", "ece")
METRICS = (
    "accuracy", "top5_accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece", "over_ece", "under_ece",
    "adaptive_ece", "classwise_ece", "class_ece", "rms_calibration_error", "mce", "smooth_ece", "aurc", "auroc",
    *(f"difference_{name}" for name in COMPARED),
)  # fmt: skip
LOW = 0.93


@dataclass(frozen=True)
class Cell:
    classes: int
    tail: int
    shape: str
    prior: str
    rows: int

    @property
    def key(self) -> str:
        return f"{self.classes}/{self.tail}/{self.shape}/{self.prior}/{self.rows}"


@dataclass(frozen=True)
class Pool:
    """Logits as the model gives them, those of a second model, and the true probabilities; (rows, C) each."""

    logits: np.ndarray
    other: np.ndarray
    true: np.ndarray


@cache
def pool_of(classes: int, tail: int, shape: str) -> Pool:
    rng = np.random.default_rng([classes, tail])
    rows = {2: 100_000, 10: 60_000, 100: 30_000}.get(classes, 12_000)
    prior = float(tail) ** (-np.arange(classes) / max(classes - 1, 1))
    prior /= prior.sum()
    z = rng.normal(size=(rows, classes))
    z[np.arange(rows), rng.choice(classes, rows, p=prior)] += 2 + rng.normal(size=rows) + 0.5 * np.log(classes)
    z += 0.7 * np.log(prior)
    logits = {"calibrated": z, "over": 1.6 * z, "under": 0.7 * z, "bias": z + 0.7 * np.sin(np.arange(classes))}[shape]
    return Pool(logits, logits + 0.5 * rng.normal(size=z.shape), softmax(z))


@cache
def truth(classes: int, tail: int, shape: str, prior: str) -> dict[str, Any]:
    pool = pool_of(classes, tail, shape)
    q, p = pool.true, softmax(pool.logits)
    share = q.mean(axis=0)
    weight = np.ones(classes) if prior == "data" else 1.0 / (share * classes)
    weighted = q * weight
    row = weighted.sum(axis=1)  # expected weight of a row
    total, here = row.sum(), np.arange(len(p))
    predicted, confidence = p.argmax(axis=1), p.max(axis=1)
    right = weighted[here, predicted]
    hits = np.bincount(predicted, right, classes)
    labelled, claimed = weighted.sum(axis=0), np.bincount(predicted, row, classes)
    top = np.argsort(-p, axis=1, kind="stable")[:, :5]
    with np.errstate(divide="ignore", invalid="ignore"):
        f1 = 2 * hits / (labelled + claimed)
    gap = confidence * row - right
    out: dict[str, Any] = {
        "accuracy": right.sum() / total,
        "top5_accuracy": np.take_along_axis(weighted, top, axis=1).sum() / total,
        "balanced_accuracy": float((hits / labelled).mean()),
        "macro_f1": float(np.nanmean(f1)),
        **losses(p, weighted, total),
    }
    width = np.bincount(equal_width_index(confidence, BINS), gap, BINS) / total
    size = np.bincount(equal_width_index(confidence, BINS), row, BINS) / total
    out |= {"ece": np.abs(width).sum(), "over_ece": width.clip(0).sum(), "under_ece": (-width).clip(0).sum()}
    out["gaps"] = np.divide(width, size, out=np.zeros(BINS), where=size > 0)
    out["rms_calibration_error"] = np.sqrt((size * out["gaps"] ** 2).sum())
    mass = equal_mass_index(confidence, BINS, row)
    out["adaptive_ece"] = np.abs(np.bincount(mass, gap, BINS)).sum() / total
    unweighted = [
        np.abs(np.bincount(equal_width_index(p[:, k], BINS), p[:, k] - q[:, k], BINS)).sum() for k in range(classes)
    ]
    out["classwise_ece"] = float(np.mean(unweighted)) / len(p)
    first = predicted == 0
    one = np.bincount(equal_width_index(confidence[first], BINS), confidence[first] - q[first, 0], BINS)
    out["class_ece"] = np.abs(one).sum() / max(first.sum(), 1)
    out["smooth_ece"] = smooth_ece_of(confidence, -gap / row, row).value
    out["aurc"] = area_under_risk_coverage(confidence, 1 - right / row, row)
    out["auroc"] = auroc_of(confidence, confidence, right, row - right)
    if prior == "data":
        two = softmax(pool.other)
        best, sure = two.argmax(axis=1), two.max(axis=1)
        other = {
            "accuracy": q[here, best].mean(), **losses(two, q, len(q)),
            "ece": np.abs(np.bincount(equal_width_index(sure, BINS), sure - q[here, best], BINS)).sum() / len(q),
        }  # fmt: skip
        out |= {f"difference_{name}": other[name] - out[name] for name in COMPARED}
    return out


def losses(p: np.ndarray, weighted: np.ndarray, total: float) -> dict[str, float]:
    """NLL and Brier score that labels with these (weighted) probabilities come to."""
    row = weighted.sum(axis=1)
    brier = (row * (p**2).sum(axis=1) - 2 * (weighted * p).sum(axis=1) + row).sum() / total
    return {"nll": float(-(weighted * np.log(p)).sum() / total), "brier": float(brier)}


def measured(cell: Cell, pool: Pool, rng: np.random.Generator, wanted: set[str]) -> tuple[dict[str, Any], np.ndarray]:
    """Every interval of one simulated data set; and the rows in each bin."""
    chosen = rng.integers(0, len(pool.logits), cell.rows)
    true = pool.true[chosen]
    labels = (true.cumsum(axis=1) > rng.random((cell.rows, 1))).argmax(axis=1)
    s = plain = statistics_of(pool.logits[chosen], labels)
    if cell.prior == "uniform":
        s = s.weighted(class_weights(s.by_true.rows, (s.by_true.rows > 0).astype(np.float64)))
    found: dict[str, Any] = {}
    if wanted & {"accuracy", "top5_accuracy", "balanced_accuracy", "macro_f1", "nll", "brier"}:
        found |= scores(s)
    if wanted & {"aurc", "auroc"}:
        found |= ranking(s)
    if wanted & {"ece", "over_ece", "under_ece", "adaptive_ece", "rms_calibration_error", "mce"}:
        found |= calibration_errors(s, BINS)
    if "classwise_ece" in wanted:
        found["classwise_ece"] = measure_classwise(s, BINS)
    if "smooth_ece" in wanted:
        found["smooth_ece"] = measure_smooth(s)
    if "class_ece" in wanted:
        found["class_ece"] = class_result(plain, "first", (0,), BINS).ece or Measured(float("nan"))
    if cell.prior == "data" and any(name.startswith("difference") for name in wanted):
        compared = compare(softmax(pool.logits[chosen]), softmax(pool.other[chosen]), labels, bins=BINS)
        found |= {f"difference_{name}": d for name, d in compared.items()}
    return {name: m for name, m in found.items() if name in wanted}, s.bins(BINS).rows


def run(cell: Cell, wanted: tuple[str, ...], sims: int) -> dict[str, dict[str, float]]:
    pool, true = pool_of(cell.classes, cell.tail, cell.shape), truth(cell.classes, cell.tail, cell.shape, cell.prior)
    rng = np.random.default_rng([cell.classes, cell.tail, SHAPES.index(cell.shape), cell.rows, cell.prior == "data"])
    out: dict[str, dict[str, float]] = {}
    for _ in range(sims):
        found, rows = measured(cell, pool, rng, set(wanted))
        for name, m in found.items():
            if m.low is None or m.high is None:
                continue
            value = float(true[name]) if name != "mce" else float(np.abs(true["gaps"][rows >= 10]).max(initial=0.0))
            entry = out.setdefault(name, {"sims": 0, "below": 0, "above": 0, "width": 0.0, "highest": -np.inf})
            entry["sims"] += 1
            entry["below"] += int(m.high < value - 1e-9)
            entry["above"] += int(m.low > value + 1e-9)
            entry["width"] += float(m.high - m.low)
            entry["highest"] = max(entry["highest"], float(m.high))
    for name, entry in out.items():
        entry["width"] /= entry["sims"]
        entry["truth"] = float(true[name]) if name != "mce" else float("nan")
        entry["covered"] = 1 - (entry["below"] + entry["above"]) / entry["sims"]
    return out


def run_one(job: tuple[Cell, tuple[str, ...], int]) -> tuple[Cell, dict[str, Any], float]:
    start = time.perf_counter()
    return job[0], run(*job), time.perf_counter() - start


def markdown(results: dict[str, Any]) -> str:
    """Coverage over all cells of a number, the lowest of a cell, and the simulations; then the cells that miss."""
    cells = {}
    for key, found in results.items():
        classes, tail, shape, prior, rows = key.split("/")
        cells[Cell(int(classes), int(tail), shape, prior, int(rows))] = found
    columns = sorted({(c.prior, c.classes) for c in cells})
    heads = [f"C {classes:,}" + (", weighted" if prior == "uniform" else "") for prior, classes in columns]
    lines = ["| number | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    misses = []
    for name in METRICS:
        texts = []
        for prior, classes in columns:
            group = [(c, r[name]) for c, r in cells.items() if (c.prior, c.classes) == (prior, classes) and name in r]
            sims = sum(int(e["sims"]) for _, e in group)
            if not sims:
                texts.append("-")
                continue
            covered = 1 - sum(e["below"] + e["above"] for _, e in group) / sims
            texts.append(f"{covered:.3f} ({min(e['covered'] for _, e in group):.2f}; {sims:,})")
            # Two standard errors of simulation below .93: what chance does not explain.
            misses += [
                f"`{name}` {e['covered']:.2f} at C {c.classes:,}, n {c.rows:,}, {c.shape}"
                + (", tail" if c.tail > 1 else "") + (", weighted" if prior == "uniform" else "")
                for c, e in group if e["covered"] < LOW - 2 * np.sqrt(LOW * (1 - LOW) / e["sims"])
            ]  # fmt: skip
        lines.append(f"| `{name}` | " + " | ".join(texts) + " |")
    return "\n".join([*lines, "", "Clearly below .93: " + ("; ".join(misses) if misses else "none") + "."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", default="2,10,100,1000")
    parser.add_argument("--rows", default="30,100,300,1000,10000")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tails", default="1,100")
    parser.add_argument("--priors", default="data,uniform")
    parser.add_argument("--metric", default=",".join(METRICS))
    parser.add_argument("--sims", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("coverage.json"))
    parser.add_argument("--table", action="store_true")
    a = parser.parse_args()
    results: dict[str, Any] = json.loads(a.json.read_text()) if a.json.exists() else {}
    if a.table:
        print(markdown(results))
        return
    wanted = tuple(a.metric.split(","))
    unknown = set(wanted) - set(METRICS)
    if unknown:
        parser.error(f"no such metric: {', '.join(sorted(unknown))}; there are {', '.join(METRICS)}")
    cells = [
        Cell(int(c), int(t), shape, prior, int(n))
        for n in a.rows.split(",") for c in a.classes.split(",") for t in a.tails.split(",")
        for shape in a.shapes.split(",") for prior in a.priors.split(",")
    ]  # fmt: skip

    def missing(cell: Cell) -> tuple[str, ...]:
        have = results.get(cell.key, {})
        return tuple(name for name in wanted if have.get(name, {}).get("asked", 0) < a.sims)

    jobs = [(cell, names, a.sims) for cell in cells if (names := missing(cell))]
    with multiprocessing.Pool(a.jobs) as workers:
        for cell, found, seconds in workers.imap_unordered(run_one, jobs):
            entry = results.setdefault(cell.key, {})
            for name in wanted:
                if name in found:
                    entry[name] = {**found[name], "asked": a.sims}
            with replacing(a.json) as temporary:
                temporary.write_text(json.dumps(results, indent=1))
            shown = " ".join(f"{name} {e['covered']:.2f}" for name, e in found.items())
            print(f"{cell.key} ({seconds:.0f} s): {shown}", flush=True)


if __name__ == "__main__":
    main()
