"""False alarms and delay of the calibration alarm by the size of its baseline, on streams whose law is known.

    OMP_NUM_THREADS=1 python bench/monitor_baselines.py [--streams 100] [--classes 2 10 20] [--sizes 100 500]
        [--seed 1] [--half] [--json PATH]

A calm stream is 5,000 labelled rows of a model that is as over-confident and biased as when its baseline was made:
log p of z ~ N(0, 2), labels from softmax(0.8 log p + bias), biases of standard deviation 0.25. Sizes below what a fixed
baseline takes are the beginning of a learned one. The turn: after 2,000 calm rows the labels come from
softmax(0.5 log p + bias); with --half from softmax(0.4 log p + bias) for a half of the rows, drawn at random, and from
the calm law for the others. The bar is 3 alarms in 100 calm streams, which an alarm that is false in 1 % of them would
fail in 1.8 % of such runs.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.alarms import Alarms, Watch, served_log_p
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftSettings

CALM, BEFORE, AFTER = 5000, 2000, 4000
SIZES = (100, 200, 400, 500, 750, 1000, 2000)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def rows_of(n: int, classes: int, rng: np.random.Generator, *, sharpness: float = 0.8) -> Rows:
    """Served log probabilities, and labels from softmax(sharpness log p + bias)."""
    bias = 0.25 * np.random.default_rng(classes).standard_normal(classes)
    log_p = served_log_p(rng.normal(0, 2, (n, classes)))
    return log_p, (sharpness * log_p + bias + rng.gumbel(size=log_p.shape)).argmax(axis=1)


def alarms_with(given: int, classes: int, rng: np.random.Generator) -> Alarms:
    rows = KnownRows.of(*rows_of(given, classes, rng))
    return Alarms(classes, Watch.given(0.0, CalibrationSettings(), DriftSettings(), rows, 2000))


@dataclass(frozen=True)
class Found:
    classes: int
    given: int
    fixed: bool
    streams: int
    false_alarms: int
    delay_median: float
    delay_p95: float
    missed: float  # share of the streams that turn, without an alarm within AFTER labels


def found(classes: int, given: int, streams: int, seed: int = 0, *, half: bool = False) -> Found:
    false, delays = 0, []
    for n in range(streams):
        rng = np.random.default_rng([n, classes, given, *([seed] if seed else [])])
        if half:
            delays.append(_half(given, classes, rng))
            continue
        false += alarms_with(given, classes, rng).labelled(*rows_of(CALM, classes, rng))
        if n % 4:
            continue
        alarms = alarms_with(given, classes, rng)
        alarms.labelled(*rows_of(BEFORE, classes, rng))
        delays.append(delay(alarms, *rows_of(AFTER, classes, rng, sharpness=0.5)))
    fixed = given >= CalibrationSettings().fewest_rows(classes)
    missed = float(np.mean(np.array(delays) >= AFTER))
    return Found(
        classes, given, fixed, streams, false, float(np.median(delays)), float(np.percentile(delays, 95)), missed
    )


def _half(given: int, classes: int, rng: np.random.Generator) -> int:
    """Labels until an alarm, where half of the rows change."""
    alarms = alarms_with(given, classes, rng)
    alarms.labelled(*rows_of(BEFORE, classes, rng))
    (same, y), (other, z) = rows_of(AFTER, classes, rng), rows_of(AFTER, classes, rng, sharpness=0.4)
    changed = rng.random(AFTER) < 0.5
    return delay(alarms, np.where(changed[:, None], other, same), np.where(changed, z, y))


def delay(alarms: Alarms, log_p: NDArray[np.float64], labels: NDArray[np.int64]) -> int:
    """Labels until an alarm, or all of them."""
    starts = range(0, len(labels), 25)
    return next((n + 25 for n in starts if alarms.labelled(log_p[n : n + 25], labels[n : n + 25])), len(labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--classes", type=int, nargs="*", default=(2, 10, 20))
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--seed", type=int, default=0, help="streams that no other seed has")
    parser.add_argument("--half", action="store_true", help="half of the rows change; no calm streams")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    start, rows = time.monotonic(), []
    print(
        "| classes | given rows | | false alarms | labels from turn to alarm, median (95 %) | missed |\n"
        "|---|---|---|---|---|---|"
    )
    for classes in asked.classes:
        for given in asked.sizes:
            one = found(classes, given, asked.streams, asked.seed, half=asked.half)
            rows.append(asdict(one))
            kind = "fixed" if one.fixed else "beginning"
            print(
                f"| {classes} | {given} | {kind} | {one.false_alarms} of {one.streams} | "
                f"{one.delay_median:.0f} ({one.delay_p95:.0f}) | {100 * one.missed:.0f} % |",
                flush=True,
            )  # fmt: skip
            if asked.json:
                asked.json.write_text(json.dumps(rows, indent=2))
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
