"""How often the 95 % intervals hold the truth: every number that is shown with one, on models whose truth is known.

    python bench/interval_coverage.py [--classes 2,10] [--rows 300,1000] [--shapes calibrated,over] [--tails 1,100]
        [--priors data,uniform] [--metric ece,classwise_ece] [--sims 100] [--first 0] [--jobs 1] [--json PATH] [--table]

A pool of images has logits and true probabilities; a data set is n rows drawn from it, each with a label drawn from its
true probabilities. So the truth is a sum over the pool, without error. Shapes: calibrated; over-confident (logits times
1.6); under-confident (times 0.7); bias (a shift for each class). Tail 100: the rarest class has a hundredth of the
rows of the commonest. Prior uniform: `evaluate(..., target_prior="uniform")`.

Results go into the JSON file after each cell (a population and a number of rows); more data sets of a cell that is in
it are added to it, since each has a seed of its own. `--first 10000` numbers them from there (into a file of its own):
data sets that no choice has seen. `--table` prints the file, or several, as Markdown and runs
nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import time
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from calibrant.atomic import replacing
from calibrant.calibration.compare import compare
from calibrant.calibration.evaluation import calibration_errors, class_result, ranking, scores
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.smooth import measure_smooth
from calibrant.calibration.metrics.ranking import area_under_risk_coverage, auroc_of
from calibrant.calibration.metrics.smooth import smooth_ece_of
from calibrant.calibration.metrics.table import metric
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.bins import equal_mass_index, equal_width_index
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.shares import class_weights

BINS = 15
SHAPES = ("calibrated", "over", "under", "bias")
COMPARED = ("accuracy", "nll", "brier", "ece")
METRICS = (
    "accuracy", "top5_accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece", "over_ece", "under_ece",
    "adaptive_ece", "classwise_ece", "class_ece", "rms_calibration_error", "mce", "smooth_ece", "aurc", "auroc",
    *(f"difference_{name}" for name in COMPARED),
)  # fmt: skip
ROW_ORDER = ("adaptive_ece", "smooth_ece", "aurc", "auroc")
LOW, RARE = 0.93, 1e-3
ENOUGH = 40  # data sets of a cell whose own coverage is shown


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


@lru_cache(maxsize=2)
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


@dataclass(frozen=True)
class ByClass:
    """What each true class adds to the sums over a pool, so that the truth under any class weights is a product."""

    rows: np.ndarray  # (C,)
    hits: np.ndarray
    top5: np.ndarray
    nll: np.ndarray
    brier: np.ndarray
    claimed: np.ndarray  # (C, C): predicted as the second
    size: np.ndarray  # (C, bins)
    gap: np.ndarray  # (C, bins)


@lru_cache(maxsize=2)
def by_class(classes: int, tail: int, shape: str) -> ByClass:
    pool = pool_of(classes, tail, shape)
    q, p = pool.true, softmax(pool.logits)
    here, predicted, confidence = np.arange(len(p)), p.argmax(axis=1), p.max(axis=1)
    right = q[here, predicted]
    index = equal_width_index(confidence, BINS)
    top = np.argsort(-p, axis=1, kind="stable")[:, :5]
    inside = np.zeros_like(q)
    np.put_along_axis(inside, top, np.take_along_axis(q, top, axis=1), axis=1)
    claimed, size = np.zeros((classes, classes)), np.zeros((BINS, classes))
    np.add.at(claimed, predicted, q)
    np.add.at(size, index, q)
    claims, hits = np.zeros((BINS, classes)), np.zeros((BINS, classes))
    np.add.at(claims, index, q * confidence[:, None])
    np.add.at(hits, (index, predicted), right)
    squares = (p**2).sum(axis=1)
    return ByClass(
        q.sum(axis=0), np.bincount(predicted, right, classes), inside.sum(axis=0), -(q * np.log(p)).sum(axis=0),
        (q * (squares[:, None] - 2 * p + 1)).sum(axis=0), claimed.T, size.T, (claims - hits).T,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def truth(classes: int, tail: int, shape: str, weights: tuple[float, ...] | None) -> dict[str, Any]:
    """Of the numbers that are sums over rows, the classes weighted; None: the data's own shares."""
    t = by_class(classes, tail, shape)
    w = np.ones(classes) if weights is None else np.array(weights)
    total = float(w @ t.rows)
    width, size = w @ t.gap / total, w @ t.size / total
    gaps = np.divide(width, size, out=np.zeros(BINS), where=size > 0)
    return {
        "accuracy": w @ t.hits / total, "top5_accuracy": w @ t.top5 / total,
        "nll": w @ t.nll / total, "brier": w @ t.brier / total,
        "ece": np.abs(width).sum(), "over_ece": width.clip(0).sum(), "under_ece": (-width).clip(0).sum(),
        "rms_calibration_error": np.sqrt((size * gaps**2).sum()), "gaps": gaps,
        "recall": t.hits / t.rows,
        "f1": 2 * w * t.hits / np.maximum(w * t.rows + w @ t.claimed, 1e-300),
    }  # fmt: skip


@lru_cache(maxsize=64)
def truth_by_rows(classes: int, tail: int, shape: str, weights: tuple[float, ...] | None, name: str) -> float:
    """Of the numbers that need the order of the rows."""
    pool = pool_of(classes, tail, shape)
    q, p = pool.true, softmax(pool.logits)
    w = np.ones(classes) if weights is None else np.array(weights)
    predicted, confidence, row = p.argmax(axis=1), p.max(axis=1), q @ w
    right = q[np.arange(len(p)), predicted] * w[predicted]
    gap = confidence * row - right
    full = row > 0
    if name == "adaptive_ece":
        mass = equal_mass_index(confidence, BINS, row)
        return float(np.abs(np.bincount(mass, gap, BINS)).sum() / row.sum())
    if name == "smooth_ece":
        return float(smooth_ece_of(confidence[full], -gap[full] / row[full], row[full]).value)
    if name == "aurc":
        return float(area_under_risk_coverage(confidence[full], 1 - right[full] / row[full], row[full]))
    return float(auroc_of(confidence, confidence, right, row - right))


@lru_cache(maxsize=64)
def truth_by_class(classes: int, tail: int, shape: str, name: str) -> float:
    """Of what is not weighted: class-wise ECE, and the ECE of the rows predicted as the first class."""
    pool = pool_of(classes, tail, shape)
    q, p = pool.true, softmax(pool.logits)
    if name == "classwise_ece":
        each = [
            np.abs(np.bincount(equal_width_index(p[:, k], BINS), p[:, k] - q[:, k], BINS)).sum() for k in range(classes)
        ]
        return float(np.mean(each)) / len(p)
    first = p.argmax(axis=1) == 0
    confidence = p[first, 0]
    one = np.bincount(equal_width_index(confidence, BINS), confidence - q[first, 0], BINS)
    return float(np.abs(one).sum() / max(first.sum(), 1))


@cache
def truth_of_differences(classes: int, tail: int, shape: str) -> dict[str, float]:
    pool = pool_of(classes, tail, shape)
    q, two = pool.true, softmax(pool.other)
    best, sure = two.argmax(axis=1), two.max(axis=1)
    right = q[np.arange(len(q)), best]
    brier = (two**2).sum(axis=1) + 1 - 2 * (q * two).sum(axis=1)
    other = {
        "accuracy": right.mean(), "nll": -(q * np.log(two)).sum() / len(q), "brier": brier.mean(),
        "ece": np.abs(np.bincount(equal_width_index(sure, BINS), sure - right, BINS)).sum() / len(q),
    }  # fmt: skip
    first = truth(classes, tail, shape, None)
    return {f"difference_{name}": float(other[name] - first[name]) for name in COMPARED}


def true_value(cell: Cell, name: str, s: Statistics) -> float:
    """What the interval of `name` should hold, for this sample: over the classes, or the bins, that the sample met.

    Balanced accuracy and macro-F1 are means over the classes that occur, a uniform prior is one over them, and the
    largest gap is that of the bins with (effectively) ten rows.
    """
    population = (cell.classes, cell.tail, cell.shape)
    if name.startswith("difference"):
        return truth_of_differences(*population)[name]
    if name in ("classwise_ece", "class_ece"):
        return truth_by_class(*population, name)
    occur = s.by_true.rows > 0
    weights = None
    if cell.prior == "uniform":
        weights = tuple(np.where(occur, 1 / by_class(*population).rows, 0.0).tolist())
    if name in ROW_ORDER:
        return truth_by_rows(*population, weights, name)
    t = truth(*population, weights)
    if name == "balanced_accuracy":
        return float(t["recall"][occur].mean())
    if name == "macro_f1":
        return float(t["f1"][occur | (s.predicted_rows > 0)].mean())
    if name == "mce":
        squares, rows = s.weight_squares(BINS), s.bins(BINS).weight
        enough = rows**2 >= 10 * (rows if squares is None else squares)
        return float(np.abs(t["gaps"][enough & (rows > 0)]).max(initial=0.0))
    return float(t[name])


def measured(cell: Cell, pool: Pool, rng: np.random.Generator, wanted: set[str]) -> tuple[dict[str, Any], Statistics]:
    """Every interval of one simulated data set; and its statistics."""
    chosen = rng.integers(0, len(pool.logits), cell.rows)
    true = pool.true[chosen]
    labels = (true.cumsum(axis=1) > rng.random((cell.rows, 1))).argmax(axis=1)
    s = plain = statistics_of(pool.logits[chosen], labels)
    if cell.prior == "uniform":
        s = s.weighted(class_weights(s.by_true.rows, (s.by_true.rows > 0).astype(np.float64)))
    found: dict[str, Any] = {}
    if wanted & {"accuracy", "top5_accuracy", "balanced_accuracy", "nll", "brier"}:
        found |= scores(s)
    if wanted & {"aurc", "auroc"}:
        found |= ranking(s)
    if wanted & {"ece", "over_ece", "under_ece", "adaptive_ece", "rms_calibration_error", "mce"}:
        found |= calibration_errors(s, BINS)
    for name in wanted & {"macro_f1", "classwise_ece"}:
        found[name] = metric(name).measure(s, BINS)
    if "smooth_ece" in wanted:
        found["smooth_ece"] = measure_smooth(s)
    if "class_ece" in wanted:
        found["class_ece"] = class_result(plain, "first", (0,), BINS).ece or Measured(float("nan"))
    if cell.prior == "data" and any(name.startswith("difference") for name in wanted):
        compared = compare(softmax(pool.logits[chosen]), softmax(pool.other[chosen]), labels, bins=BINS)
        found |= {f"difference_{name}": d for name, d in compared.items()}
    return {name: m for name, m in found.items() if name in wanted}, s


def run(cell: Cell, wanted: tuple[str, ...], first: int, sims: int) -> dict[str, dict[str, float]]:
    """Sums over the data sets from number `first` to `sims`; each has a seed of its own."""
    pool = pool_of(cell.classes, cell.tail, cell.shape)
    seed = [cell.classes, cell.tail, SHAPES.index(cell.shape), cell.rows, cell.prior == "data"]
    out: dict[str, dict[str, float]] = {}
    for number in range(first, sims):
        found, s = measured(cell, pool, np.random.default_rng([*seed, number]), set(wanted))
        for name, m in found.items():
            entry = out.setdefault(name, {"asked": 0, "sims": 0, "below": 0, "above": 0, "width": 0.0, "truth": 0.0})
            entry["asked"] += 1
            if m.low is None or m.high is None:
                continue
            value = true_value(cell, name, s)
            entry["sims"] += 1
            entry["below"] += int(m.high < value - 1e-9)
            entry["above"] += int(m.low > value + 1e-9)
            entry["width"] += float(m.high - m.low)
            entry["truth"] += value
    return out


def covered(entry: dict[str, float]) -> float:
    return 1 - (entry["below"] + entry["above"]) / entry["sims"]


def chance_of(entry: dict[str, float]) -> float:
    """That an interval which covers .93 misses as often or more often."""
    n, missed = int(entry["sims"]), int(entry["below"] + entry["above"])
    return sum(math.comb(n, k) * (1 - LOW) ** k * LOW ** (n - k) for k in range(missed, n + 1))


def run_one(job: tuple[Cell, tuple[str, ...], int, int]) -> tuple[Cell, dict[str, Any], float]:
    start = time.perf_counter()
    return job[0], run(*job), time.perf_counter() - start


def markdown(results: dict[str, Any]) -> str:
    """Coverage over all cells, the lowest of those with forty data sets or more, data sets; then cells that miss."""
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
            here = {c: r[name] for c, r in cells.items() if (c.prior, c.classes) == (prior, classes) and name in r}
            group = [(c, e) for c, e in here.items() if e["sims"]]
            sims = sum(int(e["sims"]) for _, e in group)
            if not sims:
                texts.append("-")
                continue
            mean = 1 - sum(e["below"] + e["above"] for _, e in group) / sims
            lowest = min((covered(e) for _, e in group if e["sims"] >= ENOUGH), default=None)
            texts.append(f"{mean:.3f} ({'' if lowest is None else f'{lowest:.2f}; '}{sims:,})")
            misses += [
                f"`{name}` {covered(e):.2f} of {e['sims']:.0f} at C {c.classes:,}, n {c.rows:,}, {c.shape}"
                + (", tail" if c.tail > 1 else "") + (", weighted" if prior == "uniform" else "")
                for c, e in group if chance_of(e) < RARE
            ]  # fmt: skip
        lines.append(f"| `{name}` | " + " | ".join(texts) + " |")
    return "\n".join(
        [
            *lines,
            "",
            "Below .93 by more than chance (one in a thousand): " + ("; ".join(misses) if misses else "none") + ".",
        ]
    )


def read(paths: list[Path]) -> dict[str, Any]:
    """By cell and number; of one that stands in several files, the one with the most data sets."""
    results: dict[str, Any] = {}
    for path in filter(Path.exists, paths):
        for key, found in json.loads(path.read_text()).items():
            entry = results.setdefault(key, {})
            entry |= {name: e for name, e in found.items() if e["asked"] > entry.get(name, {"asked": 0})["asked"]}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", default="2,10,100,1000")
    parser.add_argument("--rows", default="30,100,300,1000,10000")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--tails", default="1,100")
    parser.add_argument("--priors", default="data,uniform")
    parser.add_argument("--metric", default=",".join(METRICS))
    parser.add_argument("--sims", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, nargs="+", default=[Path("coverage.json")])
    parser.add_argument("--table", action="store_true")
    a = parser.parse_args()
    path, results = a.json[0], read(a.json)
    if a.table:
        print(markdown(results))
        return
    wanted = tuple(a.metric.split(","))
    unknown = set(wanted) - set(METRICS)
    if unknown:
        parser.error(f"no such metric: {', '.join(sorted(unknown))}; there are {', '.join(METRICS)}")
    cells = [
        Cell(int(c), int(t), shape, prior, int(n))
        for c in a.classes.split(",") for t in a.tails.split(",") for shape in a.shapes.split(",")
        for n in a.rows.split(",") for prior in a.priors.split(",")
    ]  # fmt: skip

    def missing(cell: Cell) -> list[tuple[Cell, tuple[str, ...], int, int]]:
        have = results.get(cell.key, {})
        done: dict[int, list[str]] = {}
        for name in wanted:
            done.setdefault(int(have.get(name, {}).get("asked", 0)), []).append(name)
        return [
            (cell, tuple(names), a.first + asked, a.first + a.sims)
            for asked, names in sorted(done.items())
            if asked < a.sims
        ]

    jobs = [job for cell in cells for job in missing(cell)]
    with multiprocessing.Pool(a.jobs) as workers:
        for cell, found, seconds in workers.imap(run_one, jobs):
            entry = results.setdefault(cell.key, {})
            for name, more in found.items():
                old = entry.get(name, {})
                entry[name] = {key: value + old.get(key, 0) for key, value in more.items()}
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(results, indent=1))
            shown = " ".join(f"{name} {covered(e):.2f}" for name, e in found.items() if e["sims"])
            print(f"{cell.key} ({seconds:.0f} s): {shown}", flush=True)


if __name__ == "__main__":
    main()
