"""Affine maps of logits, zeta = A x + c: class-wise temperatures, vector, matrix and Dirichlet calibration.

classwise-temperature: A = diag(1 / T_k), c = 0.          vector: A = diag(w), c free (Guo et al. 2017).
matrix: A, c free, on x = z.                               dirichlet: the same on x = log softmax(z) (Kull et al. 2019).
All minimise  mean_i w_i CE(softmax(A x_i + c + o), y_i) + penalty, o a fixed offset (the prior term). c is reported
with mean 0, as softmax cannot see its mean.

By default the map is kept near the temperature that fits, A = I / T, by the penalty of `strengths.py`, and the rows
choose how strongly. `penalty` takes the papers' own in its place: 0 is none; for matrix and Dirichlet any
other is ODIR, lambda mean_offdiagonal A^2 + lambda mean c^2, with a free diagonal; for the two diagonal maps it is the
strength.

Differs: the default penalty, with which fifty rows cannot lose badly to a temperature; Newton's method to a gradient at
rounding level for up to about 30 classes and `penalty` given, where common code takes a fixed number of first-order
steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.estimation.near import Near, fit_near
from calibrant.calibration.calibrators.estimation.newton import Problem, minimise
from calibrant.calibration.calibrators.estimation.strengths import fit_averaged
from calibrant.calibration.calibrators.form import Form, Matrix, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import (
    Affine,
    LogSoftmax,
    Step,
)
from calibrant.calibration.calibrators.temperature import minimise_nll, steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
Fitted = tuple[dict[str, Any], dict[str, Any]]


# ---- diagonal maps ----


def fit_classwise_temperature(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    penalty: float | None = None,
    seed: int = 0,
) -> Fitted:
    """One temperature for each class's logit: z_k / T_k."""
    w, _, notes = _diagonal(logits, labels, weights, offset, penalty, seed, bias=False)
    if (w <= 0).any():
        bad = np.flatnonzero(w <= 0).tolist()
        raise ConfigError(
            f"no positive temperature fits class{'es' * (len(bad) > 1)} {', '.join(map(str, bad[:5]))}",
            fix="use vector or temperature",
        )
    return {"temperatures": (1.0 / w).tolist()}, notes


def fit_vector(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    penalty: float | None = None,
    seed: int = 0,
) -> Fitted:
    """w_k z_k + b_k."""
    w, bias, notes = _diagonal(logits, labels, weights, offset, penalty, seed, bias=True)
    return {"weights": w.tolist(), "bias": (bias - bias.mean()).tolist()}, notes


def _diagonal(
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    penalty: float | None,
    seed: int,
    *,
    bias: bool,
) -> tuple[Vector, Vector, dict[str, Any]]:
    """(w, b, notes)."""
    c = logits.shape[1]
    if penalty == 0:
        scale = 1.0 / minimise_nll(logits, labels, weights, offset=offset).temperature
        problem = Problem.diagonal_map(logits.astype(np.float64), labels, weights, offset, bias=bias)
        start = np.append(np.full(c, scale), np.zeros(c if bias else 0))
        result = minimise(problem, start, np.zeros(len(start)))
        return result.parameters[:c], result.parameters[c:], result.notes()
    temperature, found = _near_temperature(logits, labels, weights, offset, penalty, seed, full=False, bias=bias)
    return found.a / temperature, found.c, found.notes


# ---- full maps ----


def fit_matrix(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    penalty: float | None = None,
    seed: int = 0,
) -> Fitted:
    """A z + c; `penalty` is lambda of ODIR (0: none)."""
    if penalty is not None:
        return _odir(logits.astype(np.float64), labels, weights, offset, penalty)
    temperature, found = _near_temperature(logits, labels, weights, offset, None, seed, full=True)
    a = np.diag(found.a) if found.a.ndim == 1 else found.a
    return {"matrix": (a / temperature).tolist(), "bias": found.c.tolist()}, found.notes


def fit_dirichlet(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    penalty: float | None = None,
    seed: int = 0,
) -> Fitted:
    """A log softmax(z) + c; `penalty` is lambda of ODIR (0: none)."""
    log_p = log_softmax(logits)
    if penalty is not None:
        return _odir(log_p, labels, weights, offset, penalty)
    temperature, found = _near_temperature(log_p, labels, weights, offset, None, seed, full=True)
    a = np.diag(found.a) if found.a.ndim == 1 else found.a
    return {"matrix": (a / temperature).tolist(), "bias": found.c.tolist()}, found.notes


def _near_temperature(
    x: Floats,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    strength: float | None,
    seed: int,
    *,
    full: bool,
    bias: bool = True,
) -> tuple[float, Near]:
    """The one temperature, and what of a richer map on x / T the rows can tell."""
    if strength is not None and strength < 0:
        raise ConfigError(f"penalty is {strength}, expected 0 or more")
    temperature = steadied(x, labels, weights, offset=offset)
    scaled = x.astype(np.float64) / temperature
    if strength is None:
        return temperature, fit_averaged(scaled, labels, weights, offset, full=full, bias=bias, seed=seed)
    return temperature, fit_near(scaled, labels, weights, offset, strength, full=full, bias=bias)


def _odir(x: Matrix, labels: Labels, weights: Weights | None, offset: Vector | None, penalty: float) -> Fitted:
    if penalty < 0:
        raise ConfigError(f"penalty is {penalty}, expected 0 or more")
    c = x.shape[1]
    table = np.zeros((c, c + 1))
    table[np.arange(c), np.arange(c)] = 1.0 / minimise_nll(x, labels, weights, offset=offset).temperature
    result = minimise(Problem.full_map(x, labels, weights, offset), table.reshape(-1), odir_weights(c, penalty))
    found = result.parameters.reshape(c, c + 1)
    bias = found[:, -1] - found[:, -1].mean()
    return {"matrix": found[:, :-1].tolist(), "bias": bias.tolist()}, {**result.notes(), "penalty": penalty}


def odir_weights(classes: int, value: float) -> Vector:
    """The penalty's weight on each squared parameter (A row by row with its bias at the end of each row)."""
    out = np.full((classes, classes + 1), value / max(classes * (classes - 1), 1))
    out[:, -1] = value / classes
    out[np.arange(classes), np.arange(classes)] = 0.0
    return out.reshape(-1)


# ---- how they act ----


def _check_classwise(p: Parameters, c: int) -> None:
    positive(p, "temperatures", (c,))


def _check_vector(p: Parameters, c: int) -> None:
    numbers(p, "weights", (c,))
    numbers(p, "bias", (c,))


def check_matrix(p: Parameters, c: int) -> None:
    numbers(p, "matrix", (c, c))
    numbers(p, "bias", (c,))


def _classwise_steps(p: Parameters, c: int) -> tuple[Step, ...]:
    return (Affine.scale(1.0 / np.asarray(p["temperatures"], np.float64)),)


def _vector_steps(p: Parameters, c: int) -> tuple[Step, ...]:
    return (vector_step(p),)


def vector_step(p: Parameters) -> Affine:
    return Affine(np.asarray(p["weights"], np.float64), np.asarray(p["bias"], np.float64))


def matrix_step(p: Parameters) -> Affine:
    return Affine(np.asarray(p["matrix"], np.float64), np.asarray(p["bias"], np.float64))


def _matrix_steps(p: Parameters, c: int) -> tuple[Step, ...]:
    return (matrix_step(p),)


def _dirichlet_steps(p: Parameters, c: int) -> tuple[Step, ...]:
    """The log-sum-exp term is the same for all classes only if A's rows have equal sums, so it stays a step."""
    return LogSoftmax(), matrix_step(p)


CLASSWISE = Form("classwise-temperature", fit_classwise_temperature, _check_classwise, _classwise_steps, diagonal=True)
VECTOR = Form("vector", fit_vector, _check_vector, _vector_steps, diagonal=True)
MATRIX = Form("matrix", fit_matrix, check_matrix, _matrix_steps)
DIRICHLET = Form("dirichlet", fit_dirichlet, check_matrix, _dirichlet_steps)
