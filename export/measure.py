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
from calibrant.export.parity import session

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one call on one thread: a batch of one, and the whole batch."""

    one: float = float("nan")
    large: float = float("nan")


@dataclass(frozen=True)
class Quality:
    """Value, low and high of the 95 % interval."""

    accuracy: tuple[float, float, float]
    ece: tuple[float, float, float]
    nll: tuple[float, float, float]
    rows: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "accuracy": list(self.accuracy), "ece": list(self.ece), "nll": list(self.nll)
        }  # fmt: skip


def quality(probabilities: Array, labels: NDArray[np.int64]) -> Quality:
    found = evaluate(probabilities, labels).metrics

    def triple(name: str) -> tuple[float, float, float]:
        m = found[name]
        return m.value, m.value if m.low is None else m.low, m.value if m.high is None else m.high

    return Quality(triple("accuracy"), triple("ece"), triple("nll"), len(labels))


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
    """Best of repeats of every file, in turns: the machine's other work hits all alike. CPU time, one thread."""
    runs = [session(path) for path in paths]
    best = np.full((len(runs), 2), np.inf)
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
                best[i, j] = min(best[i, j], time.process_time() - start)
        if time.perf_counter() > end:
            return [Cost(float(one), float(large)) for one, large in best]
