"""How often the predicted class is right: accuracy, over the rows or evenly over the classes, and F1."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import Weights
from calibrant.calibration.metrics.rows import read_rows


def accuracy(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Share of rows whose predicted class is the label."""
    rows = read_rows(probs, labels, weights)
    return rows.mean(rows.correct.astype(np.float64))


def top_k_accuracy(probs: ArrayLike, labels: ArrayLike, *, k: int = 5, weights: ArrayLike | None = None) -> float:
    """Share of rows whose label is among the k most probable classes; of equals the lower class comes first."""
    rows = read_rows(probs, labels, weights)
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    own = rows.probs[np.arange(len(rows.labels)), rows.labels][:, None]
    before = np.arange(rows.probs.shape[1]) < rows.labels[:, None]
    rank = ((rows.probs > own) | ((rows.probs == own) & before)).sum(axis=1)
    return rows.mean((rank < k).astype(np.float64))


def balanced_accuracy(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Mean recall over the classes that occur among the labels."""
    rows = read_rows(probs, labels, weights)
    total = np.bincount(rows.labels, rows.weights)
    right = np.bincount(rows.labels, _times(rows.correct, rows.weights))
    present = total > 0
    return float((right[present] / total[present]).mean())


def macro_f1(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Mean over classes of 2 TP / (2 TP + FP + FN); classes neither labelled nor predicted are left out."""
    rows = read_rows(probs, labels, weights)
    c = rows.probs.shape[1]
    total = np.bincount(rows.labels, rows.weights, c)
    claimed = np.bincount(rows.predicted, rows.weights, c)
    right = np.bincount(rows.labels, _times(rows.correct, rows.weights), c)
    present = total + claimed > 0
    return float((2 * right[present] / (total + claimed)[present]).mean())


def _times(correct: NDArray[np.bool_], weights: Weights | None) -> NDArray[np.float64]:
    return correct.astype(np.float64) if weights is None else weights * correct
