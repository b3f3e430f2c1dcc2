"""What the monitor of the server is worth on real logits: coverage of the label-free accuracy, speed and false alarms.

python bench/serve_monitor.py DIR_OF_LOGITS [--json PATH]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration import fit
from calibrant.serve.watch import Baseline, CalibrationAlarm, expected_accuracy

Array = NDArray[np.float64]


def log_softmax(z: Array) -> Array:
    z = z - z.max(axis=1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))


def gap_of(log_p: Array, y: NDArray[np.int64]) -> tuple[float, float]:
    """Accuracy - confidence on held-out rows, and the variance of that estimate."""
    d = (log_p.argmax(axis=1) == y) - np.exp(log_p.max(axis=1))
    return float(d.mean()), float(d.var() / len(d))


def in_distribution(z: Array, y: NDArray[np.int64], rng: np.random.Generator) -> dict[str, Any]:
    """1,000 windows of 500 rows and 1,000 streams of 5,000, from 100 random halves.

    Temperature, gap and baseline are fitted on the other half each time: one fixed split would have one error of the
    fit in all of its windows.
    """
    windows, false = [], 0
    for _ in range(100):
        order = rng.permutation(len(y))
        cal, test = order[: len(y) // 2], order[len(y) // 2 :]
        log_p = log_softmax(z / float(fit("temperature", z[cal], y[cal]).parameters["temperature"]))
        windows.append(coverage(log_p[test], y[test], gap_of(log_p[cal], y[cal]), rng, windows=10))
        baseline = Baseline.fit(log_p[cal], y[cal])
        for _ in range(10):
            stream = rng.permutation(test)
            alarm = CalibrationAlarm(baseline=baseline)
            false += alarm.add(log_p[stream], y[stream])
    return {
        "label_free": {key: float(np.mean([w[key] for w in windows])) for key in windows[0]},
        "false_alarms_per_1000_streams_of_5000": false,
    }  # fmt: skip


def after_the_shift(
    clean: Mapping[str, Any], z: Array, y: NDArray[np.int64], rng: np.random.Generator, *, streams: int = 200
) -> dict[str, Any]:
    """Calibrated on half of the clean rows; the stream runs through the other half and then turns to JPEG rows."""
    zc, yc = clean["logits"].astype(np.float64), clean["labels"]
    delays, early, expected, errors, temperatures = [], 0, [], [], []
    for _ in range(streams):
        order = rng.permutation(len(yc))
        fit_on, rest = order[: len(yc) // 2], order[len(yc) // 2 :]
        t = float(fit("temperature", zc[fit_on], yc[fit_on]).parameters["temperature"])
        clean_p = log_softmax(zc / t)
        alarm = CalibrationAlarm(baseline=Baseline.fit(clean_p[fit_on], yc[fit_on]))
        early += alarm.add(clean_p[rest], yc[rest])
        after = rng.choice(np.setdiff1d(np.arange(len(y)), clean["jpeg_row"][fit_on]), 3000, replace=False)
        log_p, labels = log_softmax(z[after] / t), y[after]
        fired = (n + 25 for n in range(0, 3000, 25) if alarm.add(log_p[n : n + 25], labels[n : n + 25]))
        delays.append(next(fired, 3000))
        gap = gap_of(clean_p[fit_on], yc[fit_on])
        said = expected_accuracy(np.exp(log_p.max(axis=1)), gap=gap[0], gap_variance=gap[1]).value
        expected.append(said)
        errors.append(said - (log_p.argmax(axis=1) == labels).mean())
        temperatures.append(t)
    return {
        "clean_temperature": float(np.median(temperatures)), "delay_median": float(np.median(delays)),
        "delay_p95": float(np.percentile(delays, 95)), "alarms_before_the_shift": early, "streams": streams,
        "under_shift": {
            "true_accuracy": float((z.argmax(axis=1) == y).mean()), "label_free_accuracy": float(np.mean(expected)),
            "too_high_by": float(np.mean(errors)), "clean_accuracy": float((zc.argmax(axis=1) == yc).mean()),
        },
    }  # fmt: skip


def coverage(
    log_p: Array, y: NDArray[np.int64], gap: tuple[float, float], rng: np.random.Generator, *, windows: int = 1000
) -> dict[str, Any]:
    """Share of windows of 500 rows whose accuracy lies inside the interval."""
    confidence, correct = np.exp(log_p.max(axis=1)), log_p.argmax(axis=1) == y
    inside, errors = 0, []
    for _ in range(windows):
        rows = rng.choice(len(y), 500, replace=False)
        got = expected_accuracy(confidence[rows], gap=gap[0], gap_variance=gap[1])
        truth = correct[rows].mean()
        inside += bool(got.low <= truth <= got.high)
        errors.append(abs(got.value - truth))
    return {"coverage": inside / windows, "mean_abs_error": float(np.mean(errors))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("logits", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    report: dict[str, Any] = {}
    for net in ("resnet20", "resnet56"):
        rng = np.random.default_rng(0)
        shifted = np.load(asked.logits / f"cifar10jpeg75_{net}_test.npz")
        clean = np.load(asked.logits / f"cifar10clean846_{net}.npz")
        z, y = shifted["logits"].astype(np.float64), shifted["labels"]
        row = {**in_distribution(z, y, rng), **after_the_shift(clean, z, y, rng)}
        report[net] = row
        print(net, json.dumps(row, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
