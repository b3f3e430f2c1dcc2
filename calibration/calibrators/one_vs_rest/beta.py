"""Beta calibration, one-vs-rest: q_k = 1 / (1 + exp(-u_k)), u_k = a_k log p_k - b_k log(1 - p_k) + c_k, a_k, b_k >= 0.

Kull, Silva Filho and Flach 2017. Fitted by Newton's method on the logistic log-loss of each class; a slope that would
be negative is set to 0 and the rest fitted again, so every map is monotone. Calibrated logits are log max(q_k, 1e-12).
log(1 - p_k) is taken from the other classes' exponentials, so it stays exact where p_k rounds to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.estimation.logistic import fit_logistic
from calibrant.calibration.calibrators.form import Form, Parameters, numbers
from calibrant.calibration.calibrators.one_vs_rest.anchor import Fitted, anchored, beside, check_anchor
from calibrant.calibration.calibrators.one_vs_rest.cells import MANY, counted
from calibrant.calibration.calibrators.steps import (
    BetaMap,
    Step,
)
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_p_and_rest
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
_RIDGE = 1e-9  # only keeps separated data finite


def fit_beta(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, mixture: bool = True, seed: int = 0
) -> Fitted:
    """`mixture=false` leaves out the temperature that stands beside the map (`anchor.py`)."""
    if mixture:
        return anchored(_fit_plain, _own_steps, logits, labels, weights, seed=seed)
    return _fit_plain(logits, labels, weights), {}


def _fit_plain(logits: Floats, labels: Labels, weights: Weights | None) -> dict[str, Any]:
    log_p, log_rest = log_p_and_rest(logits)
    w = np.full(len(labels), 1.0 / len(labels)) if weights is None else weights / weights.sum()
    rows = [_fit_class(log_p[:, k], log_rest[:, k], labels == k, w, log_p.size >= MANY) for k in range(log_p.shape[1])]
    a, b, c = np.array(rows).T
    return {"a": a.tolist(), "b": b.tolist(), "c": c.tolist()}


def _fit_class(
    log_p: Vector, log_rest: Vector, positive: NDArray[np.bool_], w: Vector, many: bool = False
) -> tuple[float, float, float]:
    share = float(np.dot(w, positive))
    hits = w * positive
    if share <= 0.0 or share >= 1.0:
        # A class without rows (or with all): nothing to learn; keep the probability as it is.
        return 1.0, 1.0, 0.0
    if many:
        u, w, hits = counted(log_p - log_rest, positive, w)
        log_p, log_rest = -np.logaddexp(0.0, -u), -np.logaddexp(0.0, u)
    features = np.stack([log_p, -log_rest, np.ones_like(log_p)], axis=1)
    slopes = [0, 1]
    while True:
        some = features[:, [*slopes, 2]]
        ridge = np.full(some.shape[1], _RIDGE)
        t = fit_logistic(some, hits, w, np.zeros(len(ridge)), ridge)
        bad = [s for s, value in zip(slopes, t, strict=False) if value < 0]
        if not bad:
            break
        slopes.remove(min(bad, key=lambda s: float(t[slopes.index(s)])))
    full = np.zeros(3)
    full[[*slopes, 2]] = t
    return float(full[0]), float(full[1]), float(full[2])


def _check(p: Parameters, classes: int) -> None:
    for key in "abc":
        values = numbers(p, key, (classes,))
        if key != "c" and (values < 0).any():
            raise ConfigError(f'parameter "{key}" must not be negative')
    check_anchor(p)


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    return beside(p, classes, _own_steps(p, classes))


def _own_steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    a, b, c = (np.asarray(p[key], np.float64) for key in "abc")
    return (BetaMap(a, b, c),)


BETA = Form("beta", fit_beta, _check, _steps)
