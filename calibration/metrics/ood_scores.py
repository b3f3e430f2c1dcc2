"""Scores by which a classifier's outputs say "I know this"; higher is more like the known rows.

energy      log sum_k exp z_k                                  Liu et al. 2020 (the negative of their energy)
msp         max_k softmax(z)_k                                 Hendrycks and Gimpel 2017
max_logit   max_k z_k                                          Hendrycks et al. 2022
norm        sum_j |f_j|                                        the feature norm that FeDLaS reads
mahalanobis -min_c (f - mu_c)' S^-1 (f - mu_c)                 Lee et al. 2018, on the last features alone
knn         -|f/|f| - its k-th nearest reference row|          Sun et al. 2022

The last two are fitted on features of labelled reference rows: never those that are judged.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import softmax

Matrix = NDArray[np.float32] | NDArray[np.float64]
Vector = NDArray[np.float64]
NEIGHBOURS = 50
_RIDGE = 1e-3  # of the mean variance, added to the covariance: a feature that never varies divides by it


def energy(logits: Matrix) -> Vector:
    z = logits.astype(np.float64)
    top = z.max(1)
    total: Vector = top + np.log(np.exp(z - top[:, None]).sum(1))
    return total


def msp(logits: Matrix) -> Vector:
    top: Vector = softmax(logits).max(1)
    return top


def max_logit(logits: Matrix) -> Vector:
    top: Vector = logits.max(1).astype(np.float64)
    return top


def norm(features: Matrix) -> Vector:
    total: Vector = np.abs(features.astype(np.float64)).sum(1)
    return total


def mahalanobis(features: Matrix, labels: NDArray[np.int64]) -> Callable[[Matrix], Vector]:
    """The score with class means and one covariance of the reference rows (N, D)."""
    x = features.astype(np.float64)
    classes, place = np.unique(labels, return_inverse=True)
    means = np.stack([x[place == k].mean(0) for k in range(len(classes))])
    rest = x - means[place]
    covariance = rest.T @ rest / max(len(x) - len(classes), 1)
    covariance[np.diag_indices_from(covariance)] += _RIDGE * float(np.trace(covariance)) / len(covariance) + 1e-12
    whiten = np.linalg.inv(np.linalg.cholesky(covariance))
    centres = means @ whiten.T

    def score(f: Matrix) -> Vector:
        y = f.astype(np.float64) @ whiten.T
        square = (y**2).sum(1)[:, None] - 2 * y @ centres.T + (centres**2).sum(1)
        nearest: Vector = np.maximum(square, 0.0).min(1)
        return -nearest

    return score


def knn(features: Matrix, *, k: int = NEIGHBOURS) -> Callable[[Matrix], Vector]:
    """The score against the reference rows (N, D), all features scaled to length 1; k at most N."""
    reference = _unit(features)
    k = min(k, len(reference))

    def score(f: Matrix) -> Vector:
        found = []
        for start in range(0, len(f), 1024):
            cosine = _unit(f[start : start + 1024]) @ reference.T
            nearest = -np.partition(-cosine, k - 1, axis=1)[:, k - 1]
            found.append(-np.sqrt(np.maximum(2 - 2 * nearest, 0.0)))
        return np.concatenate(found)

    return score


def _unit(features: Matrix) -> Vector:
    x = features.astype(np.float64)
    unit: Vector = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    return unit
