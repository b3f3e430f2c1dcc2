"""The prior from the confusion of a labelled set: nothing about the probabilities has to be right.

    K_jk = mean of p_j over labelled rows of class k;   mean of p over the served rows = K pi

BBSE (Lipton, Wang and Smola 2018), with probabilities for predicted classes, solved with a ridge on the departure from
the labelled prior as RLLS does (Azizzadenesheli et al. 2019). Differs: a fixed small ridge instead of one from a bound.
Variance by the delta method: K^-1 (Cov of the served mean + sum_k pi_k^2 Cov(p | k) / n_k) K^-T.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RIDGE = 1e-4


@dataclass(frozen=True)
class ByConfusion:
    prior: Array
    covariance: Array
    smallest: float  # singular value of K: how well the model tells the classes apart
    mixed: tuple[int, int]  # the two classes that it tells apart the least


def prior_by_confusion(p: Array, labels: NDArray[np.int64], served: Array) -> ByConfusion:
    """p (N, C) of labelled rows, each class there; served (n, C)."""
    classes = p.shape[1]
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    means = np.zeros((classes, classes))
    np.add.at(means, labels, p)
    means /= counts[:, None]
    confusion = means.T
    base, seen = counts / len(labels), served.mean(axis=0)
    inner = confusion.T @ confusion + RIDGE * np.eye(classes)
    solve = np.linalg.solve(inner, confusion.T)
    raw = base + solve @ (seen - confusion @ base)
    prior = np.maximum(raw, 0.0)
    prior /= prior.sum()
    from_mean = served - seen
    # Row i of class k with weight pi_k / sqrt(n_k (n_k - 1)): the sum over rows is sum_k pi_k^2 Cov(p | k) / n_k.
    weight = prior / np.sqrt(counts * np.maximum(counts - 1, 1))
    from_class = (p - means[labels]) * weight[labels, None]
    spread = from_mean.T @ from_mean / len(served) ** 2 + from_class.T @ from_class
    # The direction that the model sees least says which two classes it mixes.
    _, values, rows = np.linalg.svd(confusion)
    first, second = np.argsort(-np.abs(rows[-1]))[:2]
    return ByConfusion(prior, solve @ spread @ solve.T, float(values[-1]), (int(first), int(second)))
