"""Structured matrix calibration: a full map kept near a temperature, each kind of entry with its own strength.

zeta = (I + D + M) x + c, x = z / T or log softmax(z / T), with T fitted first; D diagonal, M off-diagonal. The penalty
is a Gaussian prior on D, M and c with precisions a_D, a_M, a_c, which the data choose by evidence (MacKay 1992):

    a_g <- (gamma_g + 2 r) / (|theta_g|^2 + 2 r / m_g),     gamma_g = sum_j in g (1 - a_g [H^-1]_jj),

H the Hessian of the penalised sum of losses. r = 2 pseudo-observations hold a_g near m_g = 2 C for D and c and
2 C (C - 1) for M: with few rows they decide, with many the data do. Where the Hessian is too large (more than about 30
classes) the precisions are m_g times a common factor chosen on held-out rows. Which x: by cross-validated NLL.

The idea of one strength for each kind of entry is from Berta, Holzmueller, Jordan and Bach, "Structured matrix scaling
for multi-class calibration" (2026), who take fixed strengths and log probabilities. Differs: strengths from the data;
x = z / T, which folds into a network's last layer, where it is as good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.affine import check_matrix, matrix_step, split
from calibrant.calibration.calibrators.form import Form, Matrix, Parameters, positive
from calibrant.calibration.calibrators.newton import NEWTON_PARAMETERS, Problem, minimise
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
Inputs = Literal["logits", "log-probabilities"]
_PSEUDO = 2.0
_FOLDS = 5
_CHOICES: tuple[Inputs, Inputs] = ("logits", "log-probabilities")
_FACTORS = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class StructuredFit:
    temperature: float
    inputs: Inputs
    matrix: Matrix  # acts on x
    bias: Vector
    precisions: dict[str, float]
    rounds: int
    gradient: float

    def logits(self, z: Matrix) -> Matrix:
        out: Matrix = inputs_of(z, self.temperature, self.inputs) @ self.matrix.T + self.bias
        return out


def fit_structured(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    inputs: str = "auto",
    folds: int = _FOLDS,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`inputs`: "logits" (folds into the last layer), "log-probabilities", or "auto"."""
    z = logits.astype(np.float64)
    notes: dict[str, Any] = {}
    if inputs == "auto":
        scores = {kind: _cross_validated(z, labels, weights, offset, kind, folds, seed) for kind in _CHOICES}
        chosen = min(_CHOICES, key=lambda kind: scores[kind])
        notes["cross_validated_nll"] = scores
    elif inputs in _CHOICES:
        chosen = inputs  # type: ignore[assignment]
    else:
        raise ConfigError(f'inputs is "{inputs}", expected auto, logits or log-probabilities')
    found = fit_once(z, labels, weights, offset, chosen)
    notes |= {"precisions": found.precisions, "rounds": found.rounds, "gradient": found.gradient}
    bias = (found.bias - found.bias.mean()).tolist()
    if chosen == "logits":
        parameters = {"inputs": chosen, "matrix": (found.matrix / found.temperature).tolist(), "bias": bias}
    else:
        parameters = {
            "inputs": chosen, "temperature": found.temperature, "matrix": found.matrix.tolist(), "bias": bias
        }  # fmt: skip
    return parameters, notes


def inputs_of(z: Matrix, temperature: float, kind: Inputs) -> Matrix:
    return z / temperature if kind == "logits" else log_softmax(z / temperature)


def fit_once(z: Matrix, labels: Labels, weights: Weights | None, offset: Vector | None, kind: Inputs) -> StructuredFit:
    c = z.shape[1]
    temperature = minimise_nll(z, labels, weights, offset=offset).temperature
    x = inputs_of(z, temperature, kind)
    group = np.ones((c, c + 1), np.int64)
    group[:, -1] = 2
    group[np.arange(c), np.arange(c)] = 0
    prior = np.array([2.0 * c, max(2.0 * c * (c - 1), 1.0), 2.0 * c])
    problem = Problem.full_map(x, labels, weights, offset)
    if c * (c + 1) <= NEWTON_PARAMETERS:
        point, precision, rounds, gradient = _by_evidence(problem, group.reshape(-1), prior)
    else:
        point, precision, rounds, gradient = _by_held_out(problem, group.reshape(-1), prior)
    matrix, bias = split(point, c)
    named = dict(zip(("diagonal", "off_diagonal", "bias"), precision.tolist(), strict=True))
    return StructuredFit(temperature, kind, matrix, bias, named, rounds, gradient)


def _identity(c: int) -> Vector:
    return np.eye(c, c + 1).reshape(-1)


def _rows(problem: Problem) -> float:
    """Rows that the sum of losses counts: all, or the effective number where they are weighted."""
    return float(1.0 / np.dot(problem.weights, problem.weights))


def _by_evidence(problem: Problem, group: NDArray[np.int64], prior: Vector) -> tuple[Vector, Vector, int, float]:
    centre = _identity(problem.x.shape[1])
    n, point, precision = _rows(problem), centre, prior.copy()
    rounds = 0
    while rounds < 30:
        rounds += 1
        penalty = precision[group] / (2 * n)
        found = minimise(problem, point, penalty, centre=centre, tolerance=1e-7)
        point = found.parameters
        second = problem.value_and_gradient(point, hessian=True)[2]
        assert second is not None  # noqa: S101
        second *= n
        second[np.diag_indices_from(second)] += precision[group]
        uncertain = precision[group] * np.diag(np.linalg.inv(second))
        determined = np.bincount(group, 1.0 - uncertain, 3)
        size = np.bincount(group, (point - centre) ** 2, 3)
        fresh = (determined + 2 * _PSEUDO) / (size + 2 * _PSEUDO / prior)
        moved = float(np.abs(np.log(fresh / precision)).max())
        precision = fresh
        if moved < 0.01:
            break
    found = minimise(problem, point, precision[group] / (2 * n), centre=centre)
    return found.parameters, precision, rounds, found.gradient


def _by_held_out(problem: Problem, group: NDArray[np.int64], prior: Vector) -> tuple[Vector, Vector, int, float]:
    centre, n = _identity(problem.x.shape[1]), _rows(problem)
    factor = 1.0
    if len(problem.labels) >= 50:
        test = np.random.default_rng(0).permutation(len(problem.labels)) % _FOLDS == 0
        part = Problem.full_map(problem.x[~test], problem.labels[~test], problem.weights[~test], problem.offset)
        scores, point = [], centre
        for value in reversed(_FACTORS):  # strongest first: each fit starts near its end
            point = minimise(
                part, point, value * prior[group] / (2 * 0.8 * n), centre=centre, tolerance=1e-5
            ).parameters
            log_p = log_softmax(problem.outputs(point, problem.x[test]))
            loss = -log_p[np.arange(len(log_p)), problem.labels[test]]
            scores.append((float(np.dot(problem.weights[test], loss)), value))
        factor = min(scores)[1]
    found = minimise(problem, centre, factor * prior[group] / (2 * n), centre=centre)
    return found.parameters, factor * prior, 1, found.gradient


def _cross_validated(
    z: Matrix, labels: Labels, weights: Weights | None, offset: Vector | None, kind: Inputs, folds: int, seed: int
) -> float:
    n = len(labels)
    folds = min(folds, n)
    if folds < 2:
        return 0.0 if kind == "logits" else 1.0
    fold = np.random.default_rng(seed).permutation(n) % folds
    tried = range(folds) if z.shape[1] ** 2 <= NEWTON_PARAMETERS else range(1)
    total = weight = 0.0
    for f in tried:
        test, train = fold == f, fold != f
        found = fit_once(z[train], labels[train], None if weights is None else weights[train], offset, kind)
        log_p = log_softmax(found.logits(z[test]) + (0.0 if offset is None else offset))
        loss = -log_p[np.arange(len(log_p)), labels[test]]
        w = np.ones(len(loss)) if weights is None else weights[test]
        total, weight = total + float(np.dot(w, loss)), weight + float(w.sum())
    return total / weight


def _check(p: Parameters, c: int) -> None:
    if p.get("inputs") not in _CHOICES:
        raise ConfigError(f'parameter "inputs" is {p.get("inputs")!r}, expected one of {", ".join(_CHOICES)}')
    if p["inputs"] == "log-probabilities":
        positive(p, "temperature", ())
    check_matrix(p, c)


def _steps(p: Parameters, c: int) -> tuple[Step, ...]:
    if p["inputs"] == "logits":
        return (matrix_step(p),)
    return Affine.scale(np.full(c, 1.0 / float(p["temperature"]))), LogSoftmax(), matrix_step(p)


STRUCTURED = Form("structured", fit_structured, _check, _steps)
