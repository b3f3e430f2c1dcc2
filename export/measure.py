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
from calibrant.export.parity import session, softmax

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


def run_logits(path: Path, images: NDArray[Any], *, level: str = "all", batch: int = 16) -> Array:
    run = session(path, level=level)
    starts = range(0, len(images), batch)
    parts = [run.run(["logits"], {"images": np.asarray(images[i : i + batch])})[0] for i in starts]
    return np.concatenate(parts).astype(np.float64)


def rmse(logits: Array, target: Array) -> float:
    """Of row-centred logits: a shift of a whole row changes no probability."""
    gap = logits - target
    return float(np.sqrt(np.mean((gap - gap.mean(1, keepdims=True)) ** 2)))


def agreement(logits: Array, target: Array) -> tuple[float, float]:
    """Share of equal winners: of all rows, and of those where the target's top two are more than 0.1 apart."""
    p = np.sort(softmax(target), axis=1)
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
