"""One increasing curve for all logits: zeta_k = m(u_k), u = z - max z, so every row keeps the order of its classes.

m is piecewise linear through 0 with slopes b_0 > 0 next to the winner, b_1, ... further down; the knots lie 1, 2, 4 and
8 nats below the winner at temperature T:   m(u) = b_0 u + sum_j (b_j - b_(j-1)) min(u - k_j, 0).
(Rahimi, Shaban, Cheng, Hartley and Boots 2020, "Intra order-preserving functions", the order-invariant case.) It is a
temperature that may differ for near and for far rivals.

Fitted with a_j = T b_j: minimises  sum_i w_i CE_i + sum_j (log a_j)^2 / (2 * .3^2), so that few rows leave it at 1 / T.
Differs: they train a network under the constraint; five slopes need no training and go into any graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import Hinges, Step, SubtractMax
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
_KNOTS = np.array([-1.0, -2.0, -4.0, -8.0])
_SPREAD = 0.3  # of log a_j


def fit_order_preserving(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, offset: Vector | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    from scipy.optimize import minimize

    temperature = steadied(logits, labels, weights, offset=offset)
    u = SubtractMax()(logits.astype(np.float64) / temperature)
    ends = np.concatenate([[0.0], _KNOTS, [-np.inf]])
    pieces = [np.clip(u, low, high) - high for high, low in zip(ends[:-1], ends[1:], strict=True)]
    n, here = len(labels), np.arange(len(labels))
    w = np.ones(n) if weights is None else weights * (weights.sum() / np.dot(weights, weights))
    shift = np.zeros(logits.shape[1]) if offset is None else offset

    def objective(log_a: Vector) -> tuple[float, Vector]:
        a = np.exp(log_a)
        zeta = sum((s * piece for s, piece in zip(a, pieces, strict=True)), start=np.tile(shift, (n, 1)))
        log_p = log_softmax(zeta)
        value = -float(np.dot(w, log_p[here, labels])) + 0.5 * float(log_a @ log_a) / _SPREAD**2
        residual = np.exp(log_p)
        residual[here, labels] -= 1.0
        residual *= w[:, None]
        by_a = np.array([float(np.vdot(residual, piece)) for piece in pieces])
        return value / n, (by_a * a + log_a / _SPREAD**2) / n

    start = np.zeros(len(pieces))
    found = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 100})
    slopes, knots = np.exp(found.x) / temperature, _KNOTS * temperature
    notes = {"temperature": temperature, "steps": int(found.nit), "scaled": np.exp(found.x).tolist()}
    return {"knots": knots.tolist(), "slopes": slopes.tolist()}, notes


def _check(p: Parameters, classes: int) -> None:
    knots = np.atleast_1d(np.asarray(p.get("knots", []), np.float64))
    numbers(p, "knots", (len(knots),))
    positive(p, "slopes", (len(knots) + 1,))
    if (np.diff(np.append(0.0, knots)) >= 0).any():
        raise ConfigError('parameter "knots" must fall from below 0')


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    slopes = np.asarray(p["slopes"], np.float64)
    return SubtractMax(), Hinges(float(slopes[0]), np.asarray(p["knots"], np.float64), np.diff(slopes))


ORDER_PRESERVING = Form("order-preserving", fit_order_preserving, _check, _steps)
