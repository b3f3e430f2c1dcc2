"""What the monitor of the server is worth on real logits: coverage of the label-free accuracy, speed and false alarms.

python bench/serve_monitor.py DIR_OF_LOGITS [--json PATH]
"""

from __future__ import annotations

import argparse
import json
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


def over_splits(z: Array, y: NDArray[np.int64], rng: np.random.Generator) -> dict[str, Any]:
    """1,000 windows of 500 rows from 100 random halves, temperature and gap fitted on the other half each time.

    One fixed split has one error of the fit in all of its windows; the interval is about the error over splits.
    """
    parts = []
    for _ in range(100):
        order = rng.permutation(len(y))
        cal, test = order[: len(y) // 2], order[len(y) // 2 :]
        t = float(fit("temperature", z[cal], y[cal]).parameters["temperature"])
        log_p = log_softmax(z / t)
        parts.append(coverage(log_p[test], y[test], gap_of(log_p[cal], y[cal]), rng, windows=10))
    return {key: float(np.mean([part[key] for part in parts])) for key in parts[0]}


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
    split = np.load(asked.logits / "split_seed42.npz")
    for net in ("resnet20", "resnet56"):
        rng = np.random.default_rng(0)
        shifted = np.load(asked.logits / f"cifar10jpeg75_{net}_test.npz")
        clean = np.load(asked.logits / f"cifar10clean846_{net}.npz")
        z, y = shifted["logits"].astype(np.float64), shifted["labels"]
        cal, test = split["cal_idx"], split["test_idx"]
        t = float(fit("temperature", z[cal], y[cal]).parameters["temperature"])
        log_p, known = log_softmax(z / t), gap_of(log_softmax(z[cal] / t), y[cal])
        row: dict[str, Any] = {
            "T": t, "in_distribution": over_splits(z, y, rng),
            "in_distribution_one_split": coverage(log_p[test], y[test], known, rng),
        }  # fmt: skip
        false, null = 0, Baseline.fit(log_p[cal], y[cal])
        for _ in range(1000):
            order = rng.permutation(test)
            alarm = CalibrationAlarm(baseline=null)
            false += alarm.add(log_p[order], y[order])
        row["false_alarms_per_1000_streams_of_5000"] = false
        # Calibrated on half of the clean rows; the stream runs through the other half and then turns to JPEG rows.
        order = rng.permutation(len(clean["labels"]))
        fit_on, rest = order[:423], order[423:]
        zc, yc = clean["logits"].astype(np.float64), clean["labels"]
        tc = float(fit("temperature", zc[fit_on], yc[fit_on]).parameters["temperature"])
        clean_p, shifted_p = log_softmax(zc / tc), log_softmax(z / tc)
        null = Baseline.fit(clean_p[fit_on], yc[fit_on])
        delays, early = [], 0
        others = np.setdiff1d(np.arange(len(y)), clean["jpeg_row"][fit_on])
        for _ in range(200):
            alarm = CalibrationAlarm(baseline=null)
            start = rng.permutation(rest)
            early += alarm.add(clean_p[start], yc[start])
            after = rng.choice(others, 3000, replace=False)
            delay = 3000
            for n in range(0, 3000, 25):
                if alarm.add(shifted_p[after[n : n + 25]], y[after[n : n + 25]]):
                    delay = n + 25
                    break
            delays.append(delay)
        row["clean_T"] = tc
        row["delay_median"], row["delay_p95"] = float(np.median(delays)), float(np.percentile(delays, 95))
        row["early_alarms_of_200"] = early
        gap = gap_of(log_softmax(zc[fit_on] / tc), yc[fit_on])
        row["label_free_under_shift"] = coverage(shifted_p, y, gap, rng)
        row["label_free_under_shift"]["expected"] = float(np.exp(shifted_p.max(axis=1)).mean() + gap[0])
        row["label_free_under_shift"]["true"] = float((shifted_p.argmax(axis=1) == y).mean())
        report[net] = row
        print(net, json.dumps(row, indent=1))
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
