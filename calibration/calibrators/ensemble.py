"""Ensemble temperature scaling: q = w_1 softmax(z / T) + w_2 softmax(z) + w_3 / C, weights >= 0 and summing to one.

Zhang, Kailkhura and Han 2020. T is the temperature of plain scaling; the log-likelihood is concave in w, its maximum is
found by expectation-maximisation, with each pair of steps extrapolated. The order of the classes never changes.
Calibrated logits are log max(q, 1e-12).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Matrix, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import (
    MixtureMap,
    Step,
)
from calibrant.calibration.calibrators.temperature import fit_temperature
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]


def fit_ensemble(
    logits: Floats, labels: Labels, weights: Weights | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    temperature, found = fit_temperature(logits, labels, weights)
    t = float(temperature["temperature"])
    n, c = logits.shape
    here = np.arange(n)
    parts = np.stack(
        [
            np.exp(log_softmax(logits / t)[here, labels]),
            np.exp(log_softmax(logits)[here, labels]),
            np.full(n, 1.0 / c),
        ]
    )
    row = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    mix, steps = _mixture(parts, row)
    nll = -float(np.dot(row, np.log(np.maximum(mix @ parts, 1e-300))))
    return (
        {"temperature": t, "weights": mix.tolist()},
        {"nll": nll, "steps": steps, "temperature_standard_error": found["standard_error"]},
    )


def _mixture(parts: Matrix, row: Vector) -> tuple[Vector, int]:
    def step(w: Vector) -> Vector:
        q = w @ parts
        share = w * (parts @ np.divide(row, q, out=np.zeros_like(row), where=q > 0))
        out: Vector = share / share.sum()
        return out

    def score(w: Vector) -> float:
        return float(np.dot(row, np.log(np.maximum(w @ parts, 1e-300))))

    w: Vector = np.array([0.9, 0.05, 0.05])
    steps = 0
    while steps < 500:
        steps += 1
        one = step(w)
        two = step(one)
        first, second = one - w, two - 2 * one + w
        fresh = two
        if float(second @ second) > 1e-300:
            # Squared extrapolation (Varadhan & Roland 2008), kept where it stays inside and is no worse.
            leap = (
                w
                + 2 * np.sqrt((first @ first) / (second @ second)) * first
                + (first @ first) / (second @ second) * second
            )
            if (leap >= 0).all() and score(leap / leap.sum()) >= score(two):
                fresh = step(leap / leap.sum())
        moved = float(np.abs(fresh - w).max())
        w = fresh
        if moved < 1e-12:
            break
    return w, steps


def _check(p: Parameters, classes: int) -> None:
    positive(p, "temperature", ())
    w = numbers(p, "weights", (3,))
    if (w < 0).any() or abs(w.sum() - 1) > 1e-6:
        raise ConfigError('parameter "weights" must be three shares that sum to one')


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    w = [float(v) for v in p["weights"]]
    return (MixtureMap((float(p["temperature"]), 1.0), (w[0], w[1]), w[2] / classes),)


ENSEMBLE = Form("ensemble-temperature", fit_ensemble, _check, _steps)
