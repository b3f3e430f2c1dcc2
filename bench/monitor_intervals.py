"""Whether the server's rolling ECE interval holds the truth: streams of labelled rows from models whose error is known.

    OMP_NUM_THREADS=1 python bench/monitor_intervals.py [--models over bias] [--classes 2 10] [--seed 0] [--json PATH]

A model is a population of 200,000 rows: confidences of softmax(z), z ~ N(0, 2) in C classes, and labels from
softmax(b z). A stream draws rows from it with replacement and then their labels, so that the truth is known exactly:
the ECE of the population in the same 15 bins, with the chance to be right in the place of right or wrong. `calibrated`:
b is 1; `over`: 0.6; `under`: 1.6; `bias`: b is 1 and one class in two is favoured by the model.

Columns: share of the streams whose 95 % interval holds the truth; its mean width; the null value beside the mean ECE.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.rolling import ECE_BINS, rolling_ece
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.bins import equal_width

MODELS = ("calibrated", "over", "under", "bias")
CLASSES = (2, 10)
WINDOWS = (100, 500, 2000)
ROWS = 200_000


@dataclass(frozen=True)
class Population:
    confidence: NDArray[np.float64]
    right: NDArray[np.float64]  # the chance to be right

    @classmethod
    def of(cls, model: str, classes: int) -> Population:
        rng = np.random.default_rng([classes, MODELS.index(model)])
        z = rng.normal(0, 2, (ROWS, classes))
        sharpness = {"over": 0.6, "under": 1.6}.get(model, 1.0)
        favour = 0.8 * (np.arange(classes) % 2 == 0) if model == "bias" else 0.0
        said, true = softmax(z + favour), softmax(sharpness * z)
        top = said.argmax(axis=1)
        return cls(said.max(axis=1), true[np.arange(ROWS), top])

    @property
    def ece(self) -> float:
        """sum_b share_b |mean confidence - mean chance to be right|."""
        return float(np.abs(equal_width(self.confidence, self.right, ECE_BINS).total_gap).sum())


@dataclass(frozen=True)
class Coverage:
    model: str
    classes: int
    rows: int
    truth: float
    covered: float
    width: float
    ece: float
    null: float


def coverage(model: str, classes: int, rows: int, streams: int, seed: int = 0) -> Coverage:
    population, rng = Population.of(model, classes), np.random.default_rng([seed, classes, rows, MODELS.index(model)])
    truth, inside, width, ece, null = population.ece, 0, 0.0, 0.0, 0.0
    for _ in range(streams):
        drawn = rng.integers(0, ROWS, rows)
        correct = (rng.random(rows) < population.right[drawn]).astype(np.float64)
        found = rolling_ece(population.confidence[drawn], correct)
        assert found.low is not None
        assert found.high is not None
        assert found.null is not None
        inside += found.low <= truth <= found.high
        width, ece, null = width + found.high - found.low, ece + found.value, null + found.null
    return Coverage(model, classes, rows, truth, inside / streams, width / streams, ece / streams, null / streams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--classes", type=int, nargs="*", default=CLASSES)
    parser.add_argument("--windows", type=int, nargs="*", default=WINDOWS)
    parser.add_argument("--seed", type=int, default=0, help="of the streams; the populations stay the same")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    start, found = time.monotonic(), []
    print(
        "| model | classes | labels | true ECE | covered | mean width | mean ECE, null |\n|---|---|---|---|---|---|---|"
    )
    for classes in asked.classes:
        for model in asked.models:
            for rows in asked.windows:
                one = coverage(model, classes, rows, asked.streams, asked.seed)
                found.append(asdict(one))
                print(
                    f"| {model} | {classes} | {rows} | {100 * one.truth:.2f} % | {100 * one.covered:.1f} % | "
                    f"{100 * one.width:.2f} | {100 * one.ece:.2f}, {100 * one.null:.2f} % |", flush=True,
                )  # fmt: skip
                if asked.json:
                    asked.json.write_text(json.dumps(found, indent=2))
    worst = min(found, key=lambda row: float(row["covered"]))
    mean = float(np.mean([float(row["covered"]) for row in found]))
    print(f"mean {100 * mean:.1f} %, lowest {100 * float(worst['covered']):.1f} %; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
