"""A temperature that grows where features lie far from those of the calibration rows: zeta = z / (T t(d)).

    d(f) = mean over the 5 nearest centres of 1 - cos((f - mu) / r, c_j)        t(d) = softplus(s (d - m)) / log 2

f: the features in front of the classifier; mu, r: their mean and deviation over the rows; c_j: up to 100 of the rows,
drawn by lot, as (f - mu) / r of length 1; m: the mean of d over the rows, so t(m) = 1, and s = 0 is plain temperature
scaling. Where pictures have changed so that d is larger than it was on the rows, t grows in proportion: confidence
falls without a new label. The order of a row's classes never changes.
(Tomani, Waseda, Shen and Cremers 2023, "Beyond In-Domain Scenarios: Robust Density-Aware Calibration".)

Minimises  sum_i w_i CE_i + (log T - log 1.6)^2 / (2 * .5^2) + s'^2 / (2 * .5^2)  over T and s' >= 0, s' = s times the
deviation of d over the rows (the first prior is that of `temperature.steadied`): few rows leave s near 0. A row that is
a centre counts its distance to the others alone, as a fresh one would.
Differs: they measure k nearest neighbours among all training rows in every layer, and put the distance under any other
map; one layer and a hundred centres make a block that a graph can hold, with one matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import LEAST_SQUARE, Affine, DensityScale, Step, checked_features
from calibrant.calibration.calibrators.temperature import HIGHEST, LOWEST, PRIOR_OF_LOG_T, steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError, DataError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
CENTRES = 100
NEAREST = 5
_SLOPE = 0.5  # of s'
_FEWEST = 10  # rows
_LEAST_DEVIATION = 1e-4  # of distances: below, features say nothing
_LEAST_SPREAD = 0.1  # of a feature, in the root mean square of all: one that hardly moves is not blown up


def fit_density_aware(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    features: NDArray[np.floating[Any]] | None = None,
    offset: Vector | None = None,
    centres: int = CENTRES,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`centres`: how many rows are kept to measure distances from; `seed` draws them."""
    from scipy.optimize import minimize

    checked_features(features, len(labels), 0 if features is None else features.shape[-1])
    assert features is not None  # as checked
    if not isinstance(centres, int) or centres < NEAREST + 1:
        raise ConfigError(f"centres is {centres}, expected {NEAREST + 1} or more")
    n, here = len(labels), np.arange(len(labels))
    w = np.ones(n) if weights is None else weights * (weights.sum() / np.dot(weights, weights))
    mean, spread, points, own = _centres(features, w, centres, seed)
    d = _distances(features, DensityScale(mean, spread, points, NEAREST, 0.0, 0.0), own)
    middle = float(w @ d / w.sum())
    deviation = max(float(np.sqrt(w @ (d - middle) ** 2 / w.sum())), _LEAST_DEVIATION)
    away = (d - middle) / deviation
    z = logits.astype(np.float64)
    z = z - z.max(axis=1, keepdims=True)
    shift = 0.0 if offset is None else offset
    usual, apart = PRIOR_OF_LOG_T

    def objective(t: Vector) -> tuple[float, Vector]:
        bent = np.logaddexp(0.0, t[1] * away)
        scale = np.exp(-t[0]) * np.log(2.0) / bent
        zeta = z * scale[:, None]
        log_p = log_softmax(zeta + shift)
        from_usual = (t[0] - usual) / apart
        value = -float(np.dot(w, log_p[here, labels])) + 0.5 * (from_usual**2 + (t[1] / _SLOPE) ** 2)
        residual = np.exp(log_p)
        residual[here, labels] -= 1.0
        by_log_scale = w * np.einsum("ij,ij->i", residual, zeta)
        by_slope = -away / (1.0 + np.exp(-t[1] * away)) / bent
        gradient = np.array([-by_log_scale.sum() + from_usual / apart, by_log_scale @ by_slope + t[1] / _SLOPE**2])
        return value / n, gradient / n

    start = np.array([np.log(steadied(logits, labels, weights, offset=offset)), 0.0])
    limits = [(np.log(LOWEST), np.log(HIGHEST)), (0.0, None)]
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=limits, options={"gtol": 1e-9, "ftol": 1e-13}
    )
    temperature, slope = float(np.exp(found.x[0])), float(found.x[1]) / deviation
    row_temperatures = temperature * np.logaddexp(0.0, slope * (d - middle)) / np.log(2.0)
    parameters = {
        "temperature": temperature, "slope": slope, "middle": middle, "nearest": NEAREST,
        "mean": mean.tolist(), "spread": spread.tolist(), "centres": points.tolist(),
    }  # fmt: skip
    notes = {
        "steps": int(found.nit),
        "scaled_slope": float(found.x[1]),
        "row_temperatures": np.quantile(row_temperatures[w > 0], [0.05, 0.5, 0.95]).tolist(),
    }
    return parameters, notes


def _centres(
    features: NDArray[np.floating[Any]], w: Vector, most: int, seed: int
) -> tuple[Vector, Vector, Matrix, NDArray[np.intp]]:
    """Mean and spread of the features, the centres, and which rows these are."""
    counted = np.flatnonzero(w > 0)
    if len(counted) < _FEWEST:
        raise DataError(f"{len(counted)} rows are too few to say how dense they lie", fix=f"give {_FEWEST} or more")
    x, share = features[counted].astype(np.float64), w[counted] / w.sum()
    mean = share @ x
    variance = share @ (x - mean) ** 2
    spread = np.sqrt(np.maximum(variance, _LEAST_SPREAD**2 * max(float(variance.mean()), LEAST_SQUARE)))
    mean, spread = _short(mean), _short(spread)
    own = np.sort(np.random.default_rng(seed).permutation(counted)[:most])
    chosen = (features[own].astype(np.float64) - mean) / spread
    length = np.sqrt(np.maximum((chosen**2).sum(axis=1, keepdims=True), LEAST_SQUARE))
    return mean, spread, _short(chosen / length), own


def _short(values: Matrix) -> Matrix:
    """In seven digits, which is what float32 holds."""
    return np.char.mod("%.6e", values).astype(np.float64)


def _distances(features: NDArray[np.floating[Any]], step: DensityScale, own: NDArray[np.intp]) -> Vector:
    """Of each row to its nearest centres, itself left out."""
    d = step.distances(features)
    cosine = step.centres @ step.centres.T
    np.fill_diagonal(cosine, -np.inf)
    d[own] = 1.0 - np.sort(cosine, axis=1)[:, -NEAREST:].mean(axis=1)
    return d


def _check(p: Parameters, classes: int) -> None:
    positive(p, "temperature", ())
    for key in ("slope", "middle"):
        numbers(p, key, ())
    rows = p.get("centres")
    mean = np.atleast_1d(np.asarray(p.get("mean", []), np.float64))
    numbers(p, "mean", (len(mean),))
    if not isinstance(rows, list) or not rows or not len(mean):
        raise ConfigError('parameter "centres" must be a list of points')
    positive(p, "spread", (len(mean),))
    numbers(p, "centres", (len(rows), len(mean)))
    nearest = p.get("nearest")
    if not isinstance(nearest, int) or not 1 <= nearest <= len(rows):
        raise ConfigError(f'parameter "nearest" is {nearest!r}, expected 1 to {len(rows)}')


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    scale = Affine.scale(np.full(classes, 1.0 / float(p["temperature"])))
    mean, spread, centres = (np.asarray(p[key], np.float64) for key in ("mean", "spread", "centres"))
    return scale, DensityScale(mean, spread, centres, int(p["nearest"]), float(p["middle"]), float(p["slope"]))


DENSITY_AWARE = Form("density-aware", fit_density_aware, _check, _steps, reads_features=True)
