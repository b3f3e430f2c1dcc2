"""Calibrators of independent labels: p_k = sigmoid(a_k z_k + b_k), fitted by the likelihood of each label by itself.

temperature: a = 1/T for all labels, b = 0.   classwise-temperature: a_k = 1/T_k, b = 0.
vector: a_k and b_k free, on Platt's targets (n_1 + 1) / (n_1 + 2) and 1 / (n_0 + 2), which keep labels that a line
separates finite (Platt 1999). auto: the one of these with the least cross-validated loss.

A label of which fewer than ten rows have it, or lack it, says too little of itself: it takes the common temperature.
Base rates: where a label is as common as pi_k in these rows and will be as common as rho_k in use, Bayes' rule adds
logit(rho_k) - logit(pi_k).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.softmax import sigmoid
from calibrant.errors import ConfigError, DataError, did_you_mean

METHODS = ("temperature", "classwise-temperature", "vector", "auto")
FEW = 10
FOLDS = 5
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Present = NDArray[np.int8]


def fit_labels(
    method: str,
    logits: NDArray[np.floating[Any]],
    present: Present,
    *,
    weights: Vector | None = None,
    target: Sequence[float] | None = None,
) -> Calibrator:
    """logits: (N, L); present: (N, L) of 1, 0, -1. target: base rates of the place of use."""
    if method not in METHODS:
        raise ConfigError(f'no method "{method}" for independent labels', fix=did_you_mean(method, METHODS))
    z = np.asarray(logits, np.float64)
    if not np.isfinite(z).all():
        raise DataError("logits of independent labels must be finite")
    if not ((present == 1).any() and (present == 0).any()):
        raise DataError("every known label is the same, so nothing can be fitted", fix="give rows of both kinds")
    w = np.ones(len(z)) if weights is None else np.asarray(weights, np.float64)
    notes: dict[str, Any] = {}
    if method == "auto":
        scores = {m: _crossed(m, z, present, w) for m in METHODS[:-1]}
        method = min(scores, key=scores.__getitem__)
        notes = {"chosen_by": f"{FOLDS}-fold cross-validation", "cross_validated_nll": scores}
    a, b, few = _fit(method, z, present, w)
    if few:
        notes["few_rows"] = few
    if target is not None:
        rates = base_rates(present, w)
        b = b + _shift(rates, np.asarray(target, np.float64))
        notes["base_rates"] = {"rows": rates.tolist(), "target": list(map(float, target))}
        method = "vector"
    parameters: dict[str, Any] = {"weights": a.tolist(), "bias": b.tolist()}
    if method == "temperature":
        parameters = {"temperature": float(1 / a[0])}
    elif method == "classwise-temperature":
        parameters = {"temperatures": (1 / a).tolist()}
    context = {"outcome": "independent", "rows": int((present >= 0).any(axis=1).sum())}
    return Calibrator(method, z.shape[1], parameters, notes, context)


def base_rates(present: Present, weights: Vector) -> Vector:
    """Share of the rows, of those where it is known, that have each label."""
    known = (present >= 0) * weights[:, None]
    return np.asarray(((present == 1) * weights[:, None]).sum(0) / np.maximum(known.sum(0), 1e-12))


def nll(z: Matrix, present: Present, weights: Vector) -> float:
    """Mean loss over all entries that are known."""
    known = (present >= 0) * weights[:, None]
    signed = np.where(present == 1, z, -z)
    return float((known * np.logaddexp(0.0, -signed)).sum() / known.sum())


def _fit(method: str, z: Matrix, present: Present, w: Vector) -> tuple[Vector, Vector, list[int]]:
    """Slopes, offsets, and the labels that say too little of themselves."""
    known = present >= 0
    labels = z.shape[1]
    shared, _ = _line(z[known], present[known] == 1, np.repeat(w[:, None], labels, axis=1)[known], bias=False)
    a, b = np.full(labels, shared), np.zeros(labels)
    if method == "temperature":
        return a, b, []
    few = []
    for k in range(labels):
        rows = known[:, k]
        y = present[rows, k] == 1
        if min(int(y.sum()), int((~y).sum())) < FEW:
            few.append(k)
            continue
        slope, offset = _line(z[rows, k], y, w[rows], bias=method == "vector")
        if slope > 0:
            a[k], b[k] = slope, offset
        else:
            few.append(k)
    return a, b, few


def _line(z: Vector, y: NDArray[np.bool_], w: Vector, *, bias: bool) -> tuple[float, float]:
    """Slope and offset of the likeliest sigmoid, by Newton's method with halved steps."""
    plus, minus = float(w[y].sum()), float(w[~y].sum())
    high, low = ((plus + 1) / (plus + 2), 1 / (minus + 2)) if bias else (1.0, 0.0)
    t = np.where(y, high, low)
    x = np.stack([z, np.ones_like(z)], axis=1)[:, : 2 if bias else 1]
    beta = np.array([1.0, 0.0])[: x.shape[1]]

    def loss(parameters: Vector) -> float:
        u = x @ parameters
        return float((w * (np.logaddexp(0.0, u) - t * u)).sum())

    now = loss(beta)
    for _ in range(100):
        p = sigmoid(x @ beta)
        gradient = x.T @ (w * (p - t))
        hessian = (x * (w * p * (1 - p))[:, None]).T @ x + 1e-9 * w.sum() * np.eye(x.shape[1])
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while size > 1e-8 and loss(beta - size * step) > now:
            size /= 2
        beta, before = beta - size * step, now
        now = loss(beta)
        if before - now <= 1e-13 * max(abs(now), 1.0):
            break
    if not bias and beta[0] <= 0:
        raise DataError("the logits fall where the labels are there: are the columns in another order, or the signs?")
    return float(beta[0]), float(beta[1]) if bias else 0.0


def _crossed(method: str, z: Matrix, present: Present, w: Vector) -> float:
    part = np.random.default_rng(0).permutation(len(z)) % FOLDS
    out = np.zeros_like(z)
    for fold in range(FOLDS):
        held = part == fold
        a, b, _ = _fit(method, z[~held], present[~held], w[~held])
        out[held] = a * z[held] + b
    return nll(out, present, w)


def _shift(rates: Vector, target: Vector) -> Vector:
    if target.shape != rates.shape:
        raise ConfigError(f"{len(target)} base rates for {len(rates)} labels", where="--target-prior")
    if not ((target > 0) & (target < 1)).all():
        raise ConfigError("base rates lie between 0 and 1", where="--target-prior")
    if not ((rates > 0) & (rates < 1)).all():
        k = int(np.flatnonzero((rates <= 0) | (rates >= 1))[0])
        raise DataError(f"label {k} is there in all of these rows or in none, so its rate cannot be moved")
    return np.asarray(np.log(target / (1 - target)) - np.log(rates / (1 - rates)))
