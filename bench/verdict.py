"""How often verdicts are wrong: levels and causes of simulated data sets whose truth is known.

    python bench/verdict.py [--rows 40,300,1000] [--shapes calibrated,constant] [--sims 1000] [--margin 0.05]
        [--json PATH] [--table]

A pool of images has logits and, for each, the probability that its first guess is right; a data set is n rows drawn
from it. Shapes of miscalibration, each with a calibration error of exactly twice the margin: constant (the same gap at
every confidence), temperature (too sharp by one factor), high (only rows above .8 are off), classes (half of the
classes are off), waves (a sine over the confidence that changes sign six times, so that the mean is nearly right), and
calibrated, which has none.

`needed` are the rows that `labels_needed(error=2 m, beyond=m)` asks for. Results go into the JSON file after each cell,
and a cell that is in it with as many simulations is not run again. `--table` prints it as Markdown and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import write_json
from calibrant.calibration.evaluation import Evaluation, gap_sample
from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.ranking import measure_auroc
from calibrant.calibration.metrics.binned_errors import ece_of, over_under_of
from calibrant.calibration.metrics.ranking import auroc_of
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.statistics.bins import equal_width_index
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.calibration.verdict.case import Case
from calibrant.calibration.verdict.judge import judge
from calibrant.calibration.verdict.labels_needed import Claims, labels_needed
from calibrant.calibration.verdict.verdict import LEVELS, Verdict

Vector = NDArray[np.float64]
CLASSES, POOL, BINS = 10, 40_000, 15
SHAPES = ("calibrated", "constant", "temperature", "high", "classes", "waves")
ROWS = (40, 100, 300, 1000, 1500, 3000)


class Population:
    """Probabilities (N, C) as claimed, and the chance that the first guess of each is right."""

    def __init__(self, shape: str, error: float) -> None:
        rng = np.random.default_rng(7)
        z = 1.5 * rng.normal(size=(POOL, CLASSES))
        z[np.arange(POOL), rng.integers(0, CLASSES, POOL)] += 2 + 1.5 * rng.normal(size=POOL)
        self.probs = softmax(z)
        self.confidence = self.probs.max(axis=1)
        self.predicted = self.probs.argmax(axis=1)
        self.right = self.confidence if shape == "calibrated" else self._tuned(z, shape, error)

    def _tuned(self, z: NDArray[np.float64], shape: str, error: float) -> Vector:
        """The shape at the size that gives the calibration error asked for, by halving."""
        low, high = 0.0, 0.95
        for _ in range(40):
            size = (low + high) / 2
            right = self._right(z, shape, size)
            low, high = (size, high) if self.error(right) < error else (low, size)
        return self._right(z, shape, high)

    def _right(self, z: NDArray[np.float64], shape: str, size: float) -> Vector:
        c = self.confidence
        if shape == "temperature":
            return softmax(z * (1 - size))[np.arange(POOL), self.predicted]
        if shape == "waves":
            return np.clip(c - size * np.sin(6 * np.pi * c), 0.0, 1.0)
        where = {"constant": np.ones(POOL, bool), "high": c > 0.8, "classes": self.predicted < CLASSES // 2}[shape]
        return np.clip(c - size * where, 0.0, 1.0)

    def error(self, right: Vector) -> float:
        index = equal_width_index(self.confidence, BINS)
        return float(np.abs(np.bincount(index, self.confidence - right, BINS)).sum() / POOL)

    def sample(self, rows: int, rng: np.random.Generator) -> Statistics:
        chosen = rng.integers(0, POOL, rows)
        p, first = self.probs[chosen], self.predicted[chosen]
        others = p.copy()
        others[np.arange(rows), first] = 0.0
        others /= others.sum(axis=1, keepdims=True)
        other = (others.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
        labels = np.where(rng.random(rows) < self.right[chosen], first, other)
        return statistics_of_probabilities(p, labels)

    def needed(self, margin: float) -> int:
        claims = Claims.of_probabilities(self.probs)
        return labels_needed(claims, error=2 * margin, beyond=margin)


@cache
def population(shape: str, error: float) -> Population:
    return Population(shape, error)


def verdict_of(s: Statistics, margin: float) -> Verdict:
    """The verdict from the numbers that decide it; `evaluate` computes many more."""
    table = s.bins(BINS)
    ece = measure_gaps(gap_sample(s, BINS), "sum", value=ece_of(table))
    halves, right = over_under_of(table), int(s.right_rows.sum())
    assert s.kept is not None
    auc = auroc_of(s.kept.confidence[s.kept.correct], s.kept.confidence[~s.kept.correct])
    metrics = {
        "ece": ece, "over_ece": Measured(halves.over), "under_ece": Measured(halves.under),
        "accuracy": Measured(right / s.rows, *share_interval(right / s.rows, s.rows)), "auroc": measure_auroc(s, auc),
    }  # fmt: skip
    evaluation = Evaluation(s.rows, s.rows, CLASSES, BINS, True, None, metrics, {}, (), (), 0)
    return judge(Case(evaluation, s), margin=margin)


def run(shape: str, rows: int, sims: int, margin: float) -> dict[str, Any]:
    pool = population(shape, 2 * margin)
    rng = np.random.default_rng([SHAPES.index(shape), rows])
    levels: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for _ in range(sims):
        found = verdict_of(pool.sample(rows, rng), margin)
        levels[found.level] += 1
        causes.update({c.kind for c in found.causes})
    return {
        "sims": sims, "needed": pool.needed(margin), "error": pool.error(pool.right),
        "levels": {level: levels[level] / sims for level in LEVELS},
        "causes": {kind: n / sims for kind, n in sorted(causes.items())},
    }  # fmt: skip


def table(block: dict[str, Any]) -> str:
    lines = ["| shape | rows | sets | " + " | ".join(LEVELS) + " |", "|---|---:|---:|" + "---:|" * len(LEVELS)]
    keys = [key.split("/") for key in block["cells"]]
    for shape, rows in sorted(keys, key=lambda key: (SHAPES.index(key[0]), int(key[1]))):
        cell = block["cells"][f"{shape}/{rows}"]
        shares = " | ".join(f"{cell['levels'][level]:.3f}" for level in LEVELS)
        lines.append(f"| {shape} | {int(rows):,} | {cell['sims']:,} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--sims", type=int, default=1000)
    parser.add_argument("--margin", type=float, default=0.05)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", action="store_true")
    chosen = parser.parse_args()
    block: dict[str, Any] = {"margin": chosen.margin, "cells": {}}
    if chosen.json is not None and chosen.json.exists():
        block = json.loads(chosen.json.read_text())
    if not chosen.table:
        for shape in chosen.shapes.split(","):
            for rows in map(int, chosen.rows.split(",")):
                known = block["cells"].get(f"{shape}/{rows}")
                if known is not None and known["sims"] >= chosen.sims:
                    continue
                start = time.perf_counter()
                cell = run(shape, rows, chosen.sims, chosen.margin)
                block["cells"][f"{shape}/{rows}"] = cell
                print(f"{shape} {rows}: {cell['levels']} {cell['causes']} ({time.perf_counter() - start:.0f} s)")
                if chosen.json is not None:
                    write_json(chosen.json, block)
    print(table(block))


if __name__ == "__main__":
    main()
