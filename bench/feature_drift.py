"""The alarm on features: how often it is false, and how soon it finds what the confidences cannot show.

    python bench/feature_drift.py [--streams 200] [--rows 100000] [--widths 2 16 512 2048] [--only false|found]

Features are relu(class mean + loadings z + noise), with coordinates of unequal scale; logits are W x. A stream that
turns has half of its rows moved by a vector that W does not see, so every probability stays as it was to the bit of a
sum. Its length is given in parts of the mean distance of a row from the mean. Normal is what the first 2,000 rows are
(own, random axes), or 4,000 rows of a baseline, half of them for the axes (given).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.alarms import Alarms, Watch, served_log_p
from calibrant.calibration.monitoring.feature_alarm import FeatureAlarm
from calibrant.calibration.monitoring.watched_features import WatchedFeatures

Array = NDArray[np.float32]
CLASSES, BASELINE, STEP = 10, 4000, 1000


@dataclass
class World:
    """A network's features, and the directions that its classifier does not see."""

    means: Array
    loadings: Array
    scale: Array
    weights: Array

    @classmethod
    def of(cls, width: int, rng: np.random.Generator) -> World:
        classes = min(CLASSES, width)
        scale = rng.lognormal(0, 0.5, width)
        means = rng.normal(0.5, 1.5, (classes, width)) * scale
        loadings = rng.normal(size=(min(20, width), width)) * scale / np.sqrt(min(20, width))
        weights = rng.normal(size=(classes, width)) / np.sqrt(width)
        weights -= weights.mean(axis=0)  # of a softmax only differences count
        return cls(*(a.astype(np.float32) for a in (means, loadings, scale, weights)))

    def rows(self, n: int, rng: np.random.Generator) -> Array:
        width = self.means.shape[1]
        z = rng.standard_normal((n, len(self.loadings)), np.float32)
        noise = 0.5 * self.scale * rng.standard_normal((n, width), np.float32)
        return np.maximum(self.means[rng.integers(0, len(self.means), n)] + z @ self.loadings + noise, 0)

    def unseen(self, part: float, rng: np.random.Generator) -> Array:
        """A random vector that moves no logit, as long as that part of a row's mean distance from the mean."""
        rows = self.rows(2000, rng)
        length = float(np.linalg.norm(rows - rows.mean(axis=0), axis=1).mean())
        hidden = np.linalg.svd(self.weights.astype(np.float64))[2][len(self.weights) - 1 :]
        vector = rng.normal(size=len(hidden)) @ hidden
        return (part * length * vector / np.linalg.norm(vector)).astype(np.float32)


def watched(world: World, given: bool, rng: np.random.Generator) -> WatchedFeatures:
    width = world.means.shape[1]
    return WatchedFeatures.of(world.rows(BASELINE, rng) if given else None, width, seed=int(rng.integers(1 << 30)))


def false_alarms(width: int, given: bool, streams: int, rows: int) -> int:
    found = 0
    for number in range(streams):
        rng = np.random.default_rng([1, width, given, number])
        world = World.of(width, rng)
        watch = watched(world, given, rng)
        alarm = FeatureAlarm(watch.watch)
        found += any(alarm.add(watch.directions.scores(world.rows(STEP, rng))) for _ in range(0, rows, STEP))
    return found


def rows_to_alarm(
    width: int, given: bool, part: float, streams: int, *, calm: int = 4000, most: int = 10_000
) -> tuple[list[int], int]:
    """From the turn; `most` where there was none. And how often the confidences or the predicted classes raised one."""
    taken, others = [], 0
    for number in range(streams):
        rng = np.random.default_rng([2, width, given, number])
        world = World.of(width, rng)
        watch, moved = watched(world, given, rng), world.unseen(part, rng)
        alarms = Alarms(len(world.weights), Watch(features=watch.watch))
        delay = most
        for start in range(0, calm + most, 50):
            x = world.rows(50, rng)
            if start >= calm:
                x[rng.random(50) < 0.5] += moved
            if alarms.featured(watch.directions.scores(x)) and start >= calm:
                delay = start + 50 - calm
            others += any(alarms.answered(served_log_p(x @ world.weights.T)))
            if delay < most:
                break
        taken.append(delay)
    return taken, others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000, help="of a calm stream")
    parser.add_argument("--widths", type=int, nargs="+", default=[2, 16, 512, 2048])
    parser.add_argument("--parts", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--only", choices=["false", "found"])
    asked = parser.parse_args()
    for width in asked.widths:
        for given in (False, True):
            row: dict[str, object] = {"width": width, "normal": "given" if given else "own", "streams": asked.streams}
            if asked.only != "found":
                row["false alarms"] = false_alarms(width, given, asked.streams, asked.rows)
            for part in asked.parts if asked.only != "false" else ():
                taken, others = rows_to_alarm(width, given, part, asked.streams)
                median, late = np.quantile(taken, (0.5, 0.95)).tolist()
                missed = sum(t >= 10_000 for t in taken)
                row[f"moved by {part:g}"] = f"{median:.0f} ({late:.0f}), {missed} missed, {others} other alarms"
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
