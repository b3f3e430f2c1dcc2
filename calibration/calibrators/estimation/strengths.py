"""Affine maps near the identity, kept there by a penalty whose strength the rows choose.

zeta = (I + D + M) x + c, D diagonal, M off-diagonal (absent in a diagonal map), C classes, n rows:

    sum_i w_i CE(softmax(zeta_i + o), y_i)  +  s (C |D|^2 + C (C - 1) |M|^2 + C |c|^2)

The proportions are those of Berta, Holzmueller, Jordan and Bach, "Structured matrix scaling for multi-class
calibration" (2026), where s = 1. Differs: s is chosen by cross-validated NLL from `STRENGTHS`, with the identity itself
among the candidates, which any other has to beat by more than three nats in the sum over the rows. So few rows leave
the identity, that is the temperature before it, where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.calibration.calibrators.estimation.newton import Problem, Vector
from calibrant.calibration.calibrators.estimation.quasi_newton import minimise_scaled
from calibrant.calibration.calibrators.form import Matrix
from calibrant.calibration.inputs import Labels, Weights
from calibrant.calibration.softmax import log_softmax

STRENGTHS = (100.0, 10.0, 1.0, 0.1)
_CLEAR = 3.0  # nats
_FOLDS = 5
_WORK = 5e6  # rows x numbers of the map up to which every fold is tried; beyond, one fold says enough
_MOST_STEPS = 60
_LEAST_GAIN = 3e-7  # of the objective, relative: below, no digit of an NLL that anyone reads changes
_HEAVY, _HEAVY_STEPS = 1e9, 15  # rows x numbers of the map; a thousand classes get so many steps


@dataclass(frozen=True)
class Near:
    """A map near the identity: `a` (C,) or (C, C), `c` (C,); `strength` is infinite for the identity itself."""

    a: Vector
    c: Vector
    strength: float
    notes: dict[str, Any]

    def __call__(self, x: Matrix) -> Matrix:
        out: Matrix = (x * self.a if self.a.ndim == 1 else x @ self.a.T) + self.c
        return out


def identity(classes: int) -> Near:
    return Near(np.ones(classes), np.zeros(classes), np.inf, {})


def fit_near(
    x: Matrix,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    strength: float,
    *,
    full: bool,
    bias: bool = True,
    start: Near | None = None,
    tolerance: float = 1e-6,
) -> Near:
    """The map of one strength; `start` is the map of another from which to begin."""
    n, c = x.shape
    problem = (
        Problem.full_map(x, labels, weights, offset)
        if full
        else Problem.diagonal_map(x, labels, weights, offset, bias=bias)
    )
    centre = flat(identity(c), full, bias)
    rows = float(1.0 / np.dot(problem.weights, problem.weights))
    begin = centre if start is None else flat(start, full, bias)
    steps = _HEAVY_STEPS if n * len(centre) > _HEAVY else _MOST_STEPS
    penalty = strength / rows * proportions(c, full, bias)
    found = minimise_scaled(
        problem, begin, penalty, centre=centre, tolerance=tolerance, most_steps=steps, least_gain=_LEAST_GAIN
    )
    t = found.parameters
    table = t.reshape(c, c + 1) if full else None
    a = t[:c] if table is None else table[:, :-1].copy()
    shift = (t[c:] if bias else np.zeros(c)) if table is None else table[:, -1]
    return Near(a, shift - shift.mean(), strength, found.notes())


def fit_chosen(
    x: Matrix,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    *,
    full: bool,
    bias: bool = True,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
) -> Near:
    """The map whose strength the rows choose, with the table of it in the notes."""
    n, c = x.shape
    w = np.ones(n) if weights is None else weights * (n / weights.sum())
    fold = np.random.default_rng(seed).permutation(n) % _FOLDS
    numbers = c * (c if full else 20)
    tried = _FOLDS if n * numbers <= _WORK else 1
    totals, rows = np.zeros(len(strengths) + 1), 0.0
    for f in range(tried if n >= 2 * _FOLDS else 0):
        test, train = fold == f, fold != f
        if not w[train].sum() or not w[test].sum():
            continue
        found, rows = identity(c), rows + float(w[test].sum())
        totals[0] += _loss(found, x, labels, w, offset, test)
        for j, strength in enumerate(strengths):
            start = found if j else None
            found = fit_near(
                x[train], labels[train], w[train], offset, strength, full=full, bias=bias, start=start, tolerance=1e-5
            )
            totals[j + 1] += _loss(found, x, labels, w, offset, test)
    best = int(np.argmin(totals[1:])) + 1
    if totals[best] >= totals[0] - _CLEAR * max(rows, 1.0) / n:
        best = 0
    names = ["none beyond the temperature", *(f"{s:g}" for s in strengths)]
    notes: dict[str, Any] = {"strength": names[best]}
    if rows:
        notes["cross_validated_nll"] = dict(zip(names, (totals / rows).tolist(), strict=True))
    if best == 0:
        return Near(identity(c).a, np.zeros(c), np.inf, notes)
    chosen = fit_near(x, labels, weights, offset, strengths[best - 1], full=full, bias=bias)
    return Near(chosen.a, chosen.c, chosen.strength, {**chosen.notes, **notes})


def _loss(
    found: Near, x: Matrix, labels: Labels, w: Vector, offset: Vector | None, test: np.ndarray[Any, Any]
) -> float:
    log_p = log_softmax(found(x[test]) + (0.0 if offset is None else offset))
    return -float(np.dot(w[test], log_p[np.arange(len(log_p)), labels[test]]))


def proportions(c: int, full: bool, bias: bool) -> Vector:
    if not full:
        return np.full(c * (1 + bias), float(c))
    out = np.full((c, c + 1), float(c * max(c - 1, 1)))
    out[:, -1] = c
    out[np.arange(c), np.arange(c)] = c
    return out.reshape(-1)


def flat(near: Near, full: bool, bias: bool) -> Vector:
    if not full:
        return np.concatenate([near.a, near.c]) if bias else near.a
    a = np.diag(near.a) if near.a.ndim == 1 else near.a
    return np.concatenate([a, near.c[:, None]], axis=1).reshape(-1)
