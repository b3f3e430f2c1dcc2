"""How well class shares of unlabelled rows are estimated: logits of known labels, resampled to priors that are known.

    python bench/label_shift.py --logits DIR [--priors 30] [--calm 100] [--rows 100,300,1000] [--fresh] [--json PATH]

DIR holds .npz files with `logits` (N, C) and `labels` (N,); those with fewer rows than twice the served ones are left
out. Of each network one half of the rows is labelled; for each of `--priors` draws of Dirichlet(1) over the classes,
rows of the other half are drawn to it (with replacement) and served without labels. A calm draw serves rows of the
other half as they come.

All draws share the halves and repeat pictures: the chance of one half is in every figure, and the intervals do not know
it. `--fresh` takes new halves for each draw and serves no picture twice where the half has enough of its class.

Columns: the part of the NLL excess that is removed (excess: what the labelled prior costs over the true one, on the
other half weighted to the true one; median and worst draw; harmed: draws made worse); how often the 95 % interval of a
class holds its true share; draws with a shift and calm draws that are called shifted. Bars: .80 in the median and no
harm at 1,000 rows, .92 to .985 of the intervals, the prior left alone in 97 of 100 calm draws.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from calibrant.artifacts.predictions import read_predictions
from calibrant.atomic import write_json
from calibrant.calibration.label_shift import PriorEstimator
from calibrant.calibration.label_shift.bias_map import BiasMap, fit_bias_map
from calibrant.calibration.softmax import log_softmax

HEADS = (
    "network",
    "served rows",
    "removed, median",
    "worst",
    "harmed",
    "intervals hold",
    "shift called",
    "calm called",
)


@dataclass(frozen=True)
class Found:
    network: str
    rows: int
    removed: list[float]
    covered: float
    called: int
    calm_called: int
    calm: int

    def cells(self) -> tuple[str, ...]:
        draws = len(self.removed)
        return (
            self.network, f"{self.rows:,}", f"{np.median(self.removed):.2f}", f"{min(self.removed):.2f}",
            f"{sum(r < 0 for r in self.removed)} of {draws}", f"{self.covered:.3f}", f"{self.called} of {draws}",
            f"{self.calm_called} of {self.calm}",
        )  # fmt: skip


class Network:
    """Logits in two halves: labelled, and those that are served from."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self.data, self.fresh = read_predictions(path).labelled(), fresh
        self.name, self.classes = path.stem, self.data.logits.shape[1]
        self.part(np.random.default_rng(7))

    def part(self, rng: np.random.Generator) -> None:
        data = self.data
        known, pool = np.array_split(rng.permutation(len(data)), 2)
        self.logits, self.labels = data.logits[pool], data.labels[pool]
        self.estimator = PriorEstimator(data.logits[known], data.labels[known])
        fitted: BiasMap = fit_bias_map(log_softmax(data.logits[known]), data.labels[known])
        self.base, self.probs = fitted.shares, fitted.probabilities(log_softmax(self.logits))

    def nll(self, target: np.ndarray, prior: np.ndarray) -> float:
        """Of the probabilities corrected to `target`, on the pool weighted to `prior`."""
        p = self.probs * target / self.base
        own = p[np.arange(len(p)), self.labels] / p.sum(axis=1)
        weight = (prior / np.bincount(self.labels, minlength=self.classes))[self.labels]
        return float(-(weight * np.log(own)).sum())

    def served(self, prior: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
        counts = rng.multinomial(rows, prior)
        drawn = []
        for k, n in enumerate(counts):
            own = np.flatnonzero(self.labels == k)
            drawn.append(rng.choice(own, n, replace=not self.fresh or n > len(own)))
        return np.concatenate(drawn)

    def run(self, rows: int, priors: int, calm: int) -> Found:
        removed, covered, called, calm_called = [], [], 0, 0
        for seed in range(priors):
            rng = np.random.default_rng([rows, seed])
            if self.fresh:
                self.part(np.random.default_rng([rows, seed, 2]))
            prior = rng.dirichlet(np.ones(self.classes))
            found = self.estimator(self.logits[self.served(prior, rows, rng)])
            excess = self.nll(self.base, prior) - self.nll(np.maximum(prior, 1e-12), prior)
            removed.append((self.nll(self.base, prior) - self.nll(found.target, prior)) / excess)
            covered.append(float(np.mean((found.low <= prior) & (prior <= found.high))))
            called += found.shifted
        for seed in range(calm):
            rng = np.random.default_rng([rows, seed, 1])
            if self.fresh:
                self.part(np.random.default_rng([rows, seed, 3]))
            calm_called += self.estimator(self.logits[rng.choice(len(self.labels), rows, replace=False)]).shifted
        return Found(self.name, rows, removed, float(np.mean(covered)), called, calm_called, calm)


def labelled_rows(path: Path) -> int:
    with np.load(path, allow_pickle=False) as arrays:
        return len(arrays["labels"]) if {"logits", "labels"} <= set(arrays.files) else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logits", type=Path, required=True)
    parser.add_argument("--priors", type=int, default=30)
    parser.add_argument("--calm", type=int, default=100)
    parser.add_argument("--rows", default="100,300,1000")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    sizes = [int(rows) for rows in a.rows.split(",")]
    files = [p for p in sorted(a.logits.glob("*.npz")) if labelled_rows(p) >= 2 * max(sizes)]
    if not files:
        parser.error(f"no .npz with `logits` and {2 * max(sizes):,} `labels` in {a.logits}")
    print("| " + " | ".join(HEADS) + " |", "|---" * len(HEADS) + "|", sep="\n")
    results = []
    for network in (Network(path, a.fresh) for path in files):
        for rows in sizes:
            found = network.run(rows, a.priors, a.calm)
            print("| " + " | ".join(found.cells()) + " |", flush=True)
            results.append(asdict(found))
    if a.json is not None:
        write_json(a.json, json.loads(json.dumps(results)))


if __name__ == "__main__":
    main()
