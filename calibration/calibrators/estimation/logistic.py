"""Penalised logistic regression on cells of rows: Newton's method with step halving.

    F(t) = sum_i ( m_i softplus(eta_i) - h_i eta_i ) + sum_j s_j (t_j - t0_j)^2,      eta = X t

m_i the weight of cell i, h_i the weight of its hits; a row by itself is a cell. F is convex. (At the top the sum is of
m softplus(eta) where nothing hit and of m softplus(-eta) where all did, so no digits are lost.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def fit_logistic(features: Vector, hits: Vector, sizes: Vector, centre: Vector, penalty: Vector) -> Vector:
    misses = sizes - hits
    t: Vector = centre.astype(np.float64, copy=True)

    def loss(at: Vector) -> float:
        eta = features @ at
        own = np.dot(hits, np.logaddexp(0.0, -eta)) + np.dot(misses, np.logaddexp(0.0, eta))
        return float(own + penalty @ (at - centre) ** 2)

    value = loss(t)
    for _ in range(100):
        q = 1.0 / (1.0 + np.exp(np.clip(-(features @ t), -700, 700)))
        gradient = features.T @ (misses * q - hits * (1 - q)) + 2 * penalty * (t - centre)
        second = (features * (sizes * q * (1 - q))[:, None]).T @ features + np.diag(2 * penalty + 1e-14)
        step = np.linalg.solve(second, gradient)
        length = 1.0
        while loss(t - length * step) > value - 1e-4 * length * float(gradient @ step) and length > 1e-6:
            length *= 0.5
        t = t - length * step
        fresh = loss(t)
        if abs(value - fresh) < 1e-15 * max(1.0, abs(value)) or float(np.abs(gradient).max()) < 1e-11:
            return t
        value = fresh
    return t
