"""Affine maps of logits, zeta = A x + c: class-wise temperatures, vector, matrix and Dirichlet calibration.

classwise-temperature: A = diag(1 / T_k), c = 0.          vector: A = diag(w), c free (Guo et al. 2017).
matrix: A, c free, on x = z.                               dirichlet: the same on x = log softmax(z) (Kull et al. 2019).
All minimise  mean_i w_i CE(softmax(A x_i + c + o), y_i) + penalty, o a fixed offset (the prior term). Matrix and
Dirichlet are kept from fitting noise by  lambda mean_offdiagonal A^2 + lambda mean c^2  (ODIR), lambda chosen by
cross-validated NLL from a grid; the diagonal is free. c is reported with mean 0, as softmax cannot see its mean.

Differs: Newton's method to a gradient at rounding level for up to about 30 classes, L-BFGS beyond, where common code
takes a fixed number of first-order steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Matrix, Parameters, numbers, positive
from calibrant.calibration.calibrators.newton import Problem, minimise
from calibrant.calibration.calibrators.steps import (
    Affine,
    LogSoftmax,
    Step,
)
from calibrant.calibration.calibrators.temperature import minimise_nll
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
LAMBDAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_FOLDS = 5


# ---- diagonal maps ----


def fit_classwise_temperature(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, offset: Vector | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One temperature for each class's logit: z_k / T_k."""
    x = logits.astype(np.float64)
    c = x.shape[1]
    start = np.full(c, 1.0 / minimise_nll(logits, labels, weights, offset=offset).temperature)
    problem = Problem.diagonal_map(x, labels, weights, offset, bias=False)
    result = minimise(problem, start, np.zeros(c))
    w = result.parameters
    if (w <= 0).any():
        bad = np.flatnonzero(w <= 0).tolist()
        raise ConfigError(
            f"no positive temperature fits class{'es' * (len(bad) > 1)} {', '.join(map(str, bad[:5]))}",
            fix="use vector or temperature",
        )
    return {"temperatures": (1.0 / w).tolist()}, result.notes()


def fit_vector(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, offset: Vector | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """w_k z_k + b_k."""
    x = logits.astype(np.float64)
    c = x.shape[1]
    start = np.append(np.full(c, 1.0 / minimise_nll(logits, labels, weights, offset=offset).temperature), np.zeros(c))
    result = minimise(Problem.diagonal_map(x, labels, weights, offset, bias=True), start, np.zeros(2 * c))
    bias = result.parameters[c:] - result.parameters[c:].mean()
    return {"weights": result.parameters[:c].tolist(), "bias": bias.tolist()}, result.notes()


# ---- full maps ----


def fit_matrix(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    penalty: float | None = None,
    folds: int = _FOLDS,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A z + c; `penalty` fixes lambda instead of choosing it by cross-validation (0: none)."""
    return _fit_full(logits.astype(np.float64), labels, weights, offset, penalty, folds, seed)


def fit_dirichlet(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    penalty: float | None = None,
    folds: int = _FOLDS,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A log softmax(z) + c; `penalty` fixes lambda instead of choosing it by cross-validation (0: none)."""
    return _fit_full(log_softmax(logits), labels, weights, offset, penalty, folds, seed)


def _fit_full(
    x: Matrix,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    penalty: float | None,
    folds: int,
    seed: int,
) -> tuple[dict[str, Any], dict[str, Any]]:
    c = x.shape[1]
    notes: dict[str, Any] = {}
    start = _scaled_identity(x, labels, weights, offset)
    if penalty is None:
        choice = choose_penalty(
            x, labels, weights, offset, [odir_weights(c, value) for value in LAMBDAS], start, folds=folds, seed=seed
        )
        penalty = LAMBDAS[choice.best]
        notes = {
            "penalty_chosen_by": f"{choice.folds}-fold cross-validation",
            "cross_validated_nll": dict(zip(map(str, LAMBDAS), choice.nll, strict=True)),
        }
    elif penalty < 0:
        raise ConfigError(f"penalty is {penalty}, expected 0 or more")
    result = minimise(Problem.full_map(x, labels, weights, offset), start, odir_weights(c, penalty))
    matrix, bias = split(result.parameters, c)
    return (
        {"matrix": matrix.tolist(), "bias": (bias - bias.mean()).tolist()},
        {**result.notes(), "penalty": penalty, **notes},
    )


def odir_weights(classes: int, value: float) -> Vector:
    """The penalty's weight on each squared parameter (A row by row with its bias at the end of each row)."""
    out = np.full((classes, classes + 1), value / max(classes * (classes - 1), 1))
    out[:, -1] = value / classes
    out[np.arange(classes), np.arange(classes)] = 0.0
    return out.reshape(-1)


def split(parameters: Vector, classes: int) -> tuple[Matrix, Vector]:
    table = parameters.reshape(classes, classes + 1)
    return table[:, :-1].copy(), table[:, -1].copy()


@dataclass(frozen=True)
class Choice:
    best: int
    nll: tuple[float, ...]
    folds: int


def choose_penalty(
    x: Matrix,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    penalties: Sequence[Vector],
    start: Vector,
    *,
    centre: Vector | None = None,
    folds: int,
    seed: int,
) -> Choice:
    """Cross-validated NLL of each penalty, strongest last to weakest first so that each fit starts near its end."""
    n = len(labels)
    folds = min(folds, n)
    if folds < 2:
        return Choice(len(penalties) - 1, tuple([float("nan")] * len(penalties)), folds)
    fold = np.random.default_rng(seed).permutation(n) % folds
    # Where one fit takes seconds, one held-out fold of the five is enough to tell factors of ten apart.
    tried = range(folds) if x.shape[1] <= 50 else range(1)
    totals, counts = np.zeros(len(penalties)), 0.0
    for f in tried:
        test, train = fold == f, fold != f
        w_train = None if weights is None else weights[train]
        w_test = np.ones(int(test.sum())) if weights is None else weights[test]
        problem = Problem.full_map(x[train], labels[train], w_train, offset)
        point = start
        for j in sorted(range(len(penalties)), key=lambda j: -float(penalties[j].sum())):
            point = minimise(problem, point, penalties[j], centre=centre, tolerance=1e-5).parameters
            matrix, bias = split(point, x.shape[1])
            log_p = log_softmax(x[test] @ matrix.T + bias + (0 if offset is None else offset))
            totals[j] -= float(np.dot(w_test, log_p[np.arange(len(log_p)), labels[test]]))
        counts += float(w_test.sum())
    nll = totals / counts
    return Choice(int(np.argmin(nll)), tuple(nll.tolist()), folds)


def _scaled_identity(x: Matrix, labels: Labels, weights: Weights | None, offset: Vector | None) -> Vector:
    c = x.shape[1]
    table = np.zeros((c, c + 1))
    table[np.arange(c), np.arange(c)] = 1.0 / minimise_nll(x, labels, weights, offset=offset).temperature
    return table.reshape(-1)


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
    return (Affine(np.asarray(p["weights"], np.float64), np.asarray(p["bias"], np.float64)),)


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
