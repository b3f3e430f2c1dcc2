"""Affine maps near the identity, kept there by a penalty.

zeta = (I + D + M) x + c, D diagonal, M off-diagonal (absent in a diagonal map), C classes, n rows:

    sum_i w_i CE(softmax(zeta_i + o), y_i)  +  s (C |D|^2 + C (C - 1) |M|^2 + C |c|^2)

The proportions are those of Berta, Holzmueller, Jordan and Bach, "Structured matrix scaling for multi-class
calibration" (2026), where s = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant.calibration.calibrators.estimation.newton import Problem, Rows, Vector
from calibrant.calibration.calibrators.estimation.quasi_newton import minimise_scaled
from calibrant.calibration.calibrators.form import Matrix
from calibrant.calibration.inputs import Labels, Weights

_MOST_STEPS = 60
_LEAST_GAIN = 3e-7  # of the objective, relative: below, no digit of an NLL that anyone reads changes
_HEAVY, _HEAVY_STEPS = 1e9, 15  # rows x numbers of the map; a thousand classes get so many steps
_SINGLE, _SINGLE_STEPS, _SINGLE_GAIN = 1e7, 40, 3e-6  # the same: beyond, single precision, in half the time


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
    x: Rows,
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
    centre = flat(identity(c), full, bias)
    single = n * len(centre) > _SINGLE
    if single:
        x = x.astype(np.float32)
    problem = (
        Problem.full_map(x, labels, weights, offset)
        if full
        else Problem.diagonal_map(x, labels, weights, offset, bias=bias)
    )
    rows = float(1.0 / np.dot(problem.weights, problem.weights))
    begin = centre if start is None else flat(start, full, bias)
    steps = _HEAVY_STEPS if n * len(centre) > _HEAVY else _SINGLE_STEPS if single else _MOST_STEPS
    penalty = strength / rows * proportions(c, full, bias)
    gain = _SINGLE_GAIN if single else _LEAST_GAIN
    found = minimise_scaled(
        problem, begin, penalty, centre=centre, tolerance=tolerance, most_steps=steps, least_gain=gain
    )
    t = found.parameters
    table = t.reshape(c, c + 1) if full else None
    a = t[:c] if table is None else table[:, :-1].copy()
    shift = (t[c:] if bias else np.zeros(c)) if table is None else table[:, -1]
    return Near(a, shift - shift.mean(), strength, found.notes())


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
