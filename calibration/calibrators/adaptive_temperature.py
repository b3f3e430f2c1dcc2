"""A temperature that depends on the row: zeta = x exp(tanh(s)), x = log softmax(z / T), s = b + v H(x) + w max_k x_k.

H is the entropy of softmax(x): s knows how undecided the network is, and how sure of its winner. No other input is
needed, so the map goes into any graph; tanh keeps the row's temperature within T / e and T e, whatever comes in. The
order of a row's classes never changes.
(Entropy: Balanya, Maronas and Ramos 2022, "Adaptive temperature scaling"; the tempered logits' own shape: Joy et al.
2023, "Sample-dependent adaptive temperature scaling", who use features.)

Minimises  sum_i w_i CE_i + (b'^2 + v'^2 + w'^2) / (2 * .1^2), where v' and w' belong to inputs scaled to deviation 1
and b' to s at their means: few rows leave T as it is. Differs: both inputs at once, the bounds, and the penalty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import Affine, LogSoftmax, ShapeScale, Step, shape_of
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax

Vector = NDArray[np.float64]
_SPREAD, _LEAST = 0.1, 0.3  # of the scaled numbers; the least deviation that an input is scaled by, in nats


def fit_adaptive_temperature(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, offset: Vector | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    from scipy.optimize import minimize

    temperature = steadied(logits, labels, weights, offset=offset)
    x = log_softmax(logits.astype(np.float64) / temperature)
    n, here = len(labels), np.arange(len(labels))
    w = np.ones(n) if weights is None else weights * (weights.sum() / np.dot(weights, weights))
    shape = np.stack(shape_of(x), axis=1)
    mean = w @ shape / w.sum()
    spread = np.maximum(np.sqrt(w @ (shape - mean) ** 2 / w.sum()), _LEAST)
    inputs = np.concatenate([np.ones((n, 1)), (shape - mean) / spread], axis=1)
    shift = 0.0 if offset is None else offset

    def objective(t: Vector) -> tuple[float, Vector]:
        bent = np.tanh(inputs @ t)
        scale = np.exp(bent)
        zeta = x * scale[:, None]
        log_p = log_softmax(zeta + shift)
        value = -float(np.dot(w, log_p[here, labels])) + 0.5 * float(t @ t) / _SPREAD**2
        residual = np.exp(log_p)
        residual[here, labels] -= 1.0
        by_s = w * np.einsum("ij,ij->i", residual, zeta) * (1.0 - bent**2)
        return value / n, (by_s @ inputs + t / _SPREAD**2) / n

    found = minimize(objective, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 100})
    slope = found.x[1:] / spread
    bias = float(found.x[0] - slope @ mean)
    row_temperatures = temperature / np.exp(np.tanh(inputs @ found.x))
    notes = {
        "steps": int(found.nit),
        "scaled": found.x.tolist(),
        "row_temperatures": np.quantile(row_temperatures, [0.05, 0.5, 0.95]).tolist(),
    }
    parameters = {"temperature": temperature, "bias": bias, "entropy": float(slope[0]), "top": float(slope[1])}
    return parameters, notes


def _check(p: Parameters, classes: int) -> None:
    positive(p, "temperature", ())
    for key in ("bias", "entropy", "top"):
        numbers(p, key, ())


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    scale = Affine.scale(np.full(classes, 1.0 / float(p["temperature"])))
    return scale, LogSoftmax(), ShapeScale(float(p["bias"]), float(p["entropy"]), float(p["top"]))


ADAPTIVE_TEMPERATURE = Form("adaptive-temperature", fit_adaptive_temperature, _check, _steps)
