"""Figures of a file beside another: speed taken together, agreement of winners, quality of probabilities."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration import evaluate
from calibrant.calibration.compare import compare
from calibrant.calibration.evaluation import gap_sample
from calibrant.calibration.intervals.binned import true_error
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.export.checks.parity import session

Array = NDArray[np.float64]
QUARTILE = 0.25
# Equal winners that `calibrant verify` asks of a quantized file: of all images, and of those whose two largest
# probabilities are more than 0.1 apart.
ASKED, ASKED_CLEAR = 0.96, 0.99


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one call on one thread: a batch of one, and the whole batch."""

    one: float = float("nan")
    large: float = float("nan")


@dataclass(frozen=True)
class Quality:
    """Value, low and high of the 95 % interval; that of the ECE is of the true error, which noise has no part in."""

    accuracy: tuple[float, float, float]
    ece: tuple[float, float, float]
    nll: tuple[float, float, float]
    ece_freed: float  # of what noise adds: the value that belongs to the interval
    ece_difference: tuple[float, float, float]  # to the float file's on the same images, paired
    rows: int

    def ece_place(self, base: Quality) -> dict[str, str]:
        """Where the ECE lies to the 95 % interval of the float file's: `below`, `within` or `above`.

        `freed`: like with like, true error against true error. `measured`: as it was measured, which an equally
        calibrated file fails whenever its noise is larger. `paired`: whether the difference is clear.
        """
        low, high = self.ece_difference[1:]
        return {
            "freed": _place(self.ece_freed, *base.ece[1:]),
            "measured": _place(self.ece[0], *base.ece[1:]),
            "paired": "above" if low > 0 else "below" if high < 0 else "within",
        }

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "accuracy": list(self.accuracy), "ece": list(self.ece), "ece_freed": self.ece_freed,
            "ece_difference": list(self.ece_difference), "nll": list(self.nll),
        }  # fmt: skip


def _place(value: float, low: float, high: float) -> str:
    return "below" if value < low else "above" if value > high else "within"


def quality(probabilities: Array, labels: NDArray[np.int64], base: Array) -> Quality:
    """Of probabilities (N, C), beside those of the float file for the same rows."""
    statistics = statistics_of_probabilities(probabilities, labels)
    evaluation = evaluate(statistics)
    found, difference = evaluation.metrics, compare(base, probabilities, labels, bins=evaluation.bins)["ece"]

    def triple(value: float, low: float | None, high: float | None) -> tuple[float, float, float]:
        return value, value if low is None else low, value if high is None else high

    accuracy, ece, nll = (triple(m.value, m.low, m.high) for m in (found["accuracy"], found["ece"], found["nll"]))
    return Quality(
        accuracy,
        ece,
        nll,
        true_error(gap_sample(statistics, evaluation.bins)),
        triple(difference.difference, difference.low, difference.high),
        len(labels),
    )


def run_logits(path: Path, images: NDArray[Any], *, level: str = "all") -> Array:
    return run_outputs(path, images, ("logits",), level=level)["logits"]


def run_outputs(
    path: Path, images: NDArray[Any], names: Sequence[str], *, level: str = "all", batch: int = 16
) -> dict[str, Array]:
    run = session(path, level=level)
    wanted = list(dict.fromkeys(names))
    starts = range(0, len(images), batch)
    parts = [run.run(wanted, {"images": np.asarray(images[i : i + batch])}) for i in starts]
    return {n: np.concatenate([p[k] for p in parts]).astype(np.float64) for k, n in enumerate(wanted)}


def ridge(features: Array, residual: Array, *, folds: int = 4) -> tuple[Array | None, Array]:
    """Weight (C, D) or None, and bias, that predict the residual (N, C); the penalty by cross-validation.

    Solved in the space of rows (N x N), since there are usually fewer images than features.
    """
    mean, offset = features.mean(0), residual.mean(0)
    x, r = features - mean, residual - offset
    kernel = x @ x.T
    unit = float(np.trace(kernel)) / len(x)
    part = np.arange(len(x)) % folds

    def dual(penalty: float, rows: NDArray[np.bool_]) -> Array:
        return np.asarray(np.linalg.solve(kernel[np.ix_(rows, rows)] + penalty * unit * np.eye(rows.sum()), r[rows]))

    def missed(penalty: float) -> float:
        gaps = [r[part == f] - kernel[np.ix_(part == f, part != f)] @ dual(penalty, part != f) for f in range(folds)]
        return float(np.mean(np.concatenate(gaps) ** 2))

    scores = {penalty: missed(penalty) for penalty in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)} if unit > 0 else {}
    best = min(scores, key=scores.__getitem__, default=None)
    if best is None or scores[best] >= 0.995 * float(np.mean(r**2)):
        return None, offset
    weight = dual(best, np.ones(len(x), bool)).T @ x
    return weight, offset - weight @ mean


def rmse(logits: Array, target: Array) -> float:
    """Of row-centred logits: a shift of a whole row changes no probability."""
    gap = logits - target
    return float(np.sqrt(np.mean((gap - gap.mean(1, keepdims=True)) ** 2)))


def agreement(logits: Array, target: Array, probabilities: Array) -> tuple[float, float]:
    """Share of equal winners: of all rows, and of those where the target's top two probabilities are 0.1 apart."""
    p = np.sort(probabilities, axis=1)
    same = logits.argmax(1) == target.argmax(1)
    clear = p[:, -1] - p[:, -2] > 0.1
    return float(same.mean()), float(same[clear].mean()) if clear.any() else 1.0


def time_together(paths: Sequence[Path], images: NDArray[Any], *, seconds: float = 0.5) -> list[Cost]:
    """Lower quartile of repeats of every file, in turns: the machine's other work hits all alike. CPU time, one thread.

    Not the best: on a virtual machine under load the CPU clock counts a few calls in 100,000 too short (5 of 12
    microseconds were seen), and the shortest of so many calls is one of those.
    """
    runs = [session(path) for path in paths]
    spent: list[tuple[list[float], list[float]]] = [([], []) for _ in runs]
    feeds = [{"images": np.ascontiguousarray(images[:1])}, {"images": np.ascontiguousarray(images)}]
    for run in runs:
        for feed in feeds:
            run.run(None, feed)
    end = time.perf_counter() + seconds * len(runs) * 2
    while True:
        for i, run in enumerate(runs):
            for j, feed in enumerate(feeds):
                start = time.process_time()
                run.run(None, feed)
                spent[i][j].append(time.process_time() - start)
        if time.perf_counter() > end:
            return [Cost(*(float(np.quantile(repeats, QUARTILE)) for repeats in both)) for both in spent]
