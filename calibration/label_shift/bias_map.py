"""A temperature and a bias per class with their covariance: what an estimate of a new prior has to start from.

    q_i = softmax(s log p_i + b),   (s, b) = argmin  sum_i -log q_i(y_i) + rho |b|^2 / 2 + rho (s - 1)^2 / 2

p: the model's probabilities on labelled rows; rho = 1 pseudo-row. The estimator of a prior believes every probability
of every class, so a temperature alone is not enough: it leaves the class-wise misfit, which then looks like a shift.

Covariance: sandwich  H^-1 (sum_i g_i g_i') H^-1,  g_i the score of row i less the mean score of its class, since the
rows of each class are what they are and only which pictures of a class came is chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import log_softmax, softmax

Array = NDArray[np.float64]
STEPS, PSEUDO_ROWS = 50, 1.0


@dataclass(frozen=True)
class BiasMap:
    """`parameters` (1 + C): s, then b. `covariance` is theirs."""

    parameters: Array
    covariance: Array
    shares: Array  # (C,) of the classes among the rows that it was fitted on
    rows: int

    def scores(self, log_p: Array) -> Array:
        scaled: Array = self.parameters[0] * log_p + self.parameters[1:]
        return scaled

    def probabilities(self, log_p: Array) -> Array:
        return softmax(self.scores(log_p))


def fit_bias_map(log_p: Array, labels: NDArray[np.int64]) -> BiasMap:
    """log_p (N, C), each class among the labels at least once. Newton with step halving; the aim is convex."""
    n, classes = log_p.shape
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    start = np.concatenate([[1.0], np.zeros(classes)])
    own = np.arange(n)

    def loss(t: Array) -> float:
        fitted = log_softmax(t[0] * log_p + t[1:])
        return float(-fitted[own, labels].sum() + PSEUDO_ROWS * ((t - start) ** 2).sum() / 2)

    t, value = start, loss(start)
    for _ in range(STEPS):
        gradient, hessian = _derivatives(log_p, labels, counts, t)
        gradient = gradient + PSEUDO_ROWS * (t - start)
        step = np.linalg.solve(hessian + PSEUDO_ROWS * np.eye(classes + 1), gradient)
        length = 1.0
        while length > 1e-6 and (next_value := loss(t - length * step)) > value:
            length /= 2
        if length <= 1e-6:
            break
        t, drop, value = t - length * step, value - next_value, next_value
        if drop < 1e-9 * n:
            break
    return BiasMap(t, _covariance(log_p, labels, counts, t), counts / n, n)


def _derivatives(log_p: Array, labels: NDArray[np.int64], counts: Array, t: Array) -> tuple[Array, Array]:
    q = softmax(t[0] * log_p + t[1:])
    mean = (q * log_p).sum(axis=1)
    gradient = np.concatenate([[float((mean - log_p[np.arange(len(labels)), labels]).sum())], q.sum(axis=0) - counts])
    hessian = np.empty((len(t), len(t)))
    hessian[0, 0] = float(((q * log_p**2).sum(axis=1) - mean**2).sum())
    hessian[0, 1:] = hessian[1:, 0] = (q * (log_p - mean[:, None])).sum(axis=0)
    hessian[1:, 1:] = np.diag(q.sum(axis=0)) - q.T @ q
    return gradient, hessian


def _covariance(log_p: Array, labels: NDArray[np.int64], counts: Array, t: Array) -> Array:
    _, hessian = _derivatives(log_p, labels, counts, t)
    q = softmax(t[0] * log_p + t[1:])
    own = np.arange(len(labels))
    scores = np.empty((len(labels), len(t)))
    scores[:, 0] = (q * log_p).sum(axis=1) - log_p[own, labels]
    scores[:, 1:] = q
    scores[own, 1 + labels] -= 1.0
    means = np.zeros((len(counts), len(t)))
    np.add.at(means, labels, scores)
    means /= np.maximum(counts, 1)[:, None]
    # n / (n - 1) of each class; the score of a class's only row is left as it is.
    several = counts[labels] > 1
    scores = np.where(several[:, None], scores - means[labels], scores)
    scores *= np.sqrt(np.where(several, counts[labels] / np.maximum(counts[labels] - 1, 1), 1.0))[:, None]
    inverse = np.linalg.inv(hessian + PSEUDO_ROWS * np.eye(len(t)))
    covariance: Array = inverse @ (scores.T @ scores) @ inverse
    return covariance
