"""Softmax and its logarithm in float64, whatever came in: calibration differences are smaller than float32 noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# The floor under probabilities that a calibrator puts at zero, so that no label is impossible and the NLL is finite.
FLOOR = 1e-12
FLOOR_DEPTH = -float(np.log(FLOOR))  # as far below the log-sum-exp of a row
LEAST_LOG_P = -100.0  # what a class that a model rules out counts as, so that sums over rows stay finite
LOWEST_LOG = float(np.log(np.finfo(np.float64).eps))


def log_softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """log p_k = z_k - max z - log sum exp(z - max z), along the last axis."""
    z = np.asarray(logits, np.float64)
    shifted: NDArray[np.float64] = z - z.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """p_k = exp(z_k - max z) / sum exp(z - max z), along the last axis."""
    z = np.asarray(logits, np.float64)
    p: NDArray[np.float64] = z - z.max(axis=-1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=-1, keepdims=True)
    return p


def sigmoid(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """p = 1 / (1 + exp(-z)) of each value by itself, without overflow at either end."""
    z = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, small) / (1.0 + small)


def log_sum_exp(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """log sum_k exp(z_k), along the last axis, which is left out."""
    z = np.asarray(logits, np.float64)
    top = z.max(axis=-1, keepdims=True)
    total: NDArray[np.float64] = top[..., 0] + np.log(np.exp(z - top).sum(axis=-1))
    return total


def floored_logits(probs: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """log max(q, 1e-12): its softmax is q renormalised, with an all-zero row made uniform."""
    return np.log(np.maximum(np.asarray(probs, np.float64), FLOOR))


def log_p_and_rest(logits: NDArray[np.floating[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """log p_k and log(1 - p_k), the latter without cancellation; neither below log of float64's spacing at 1.

    Beyond that, one far-off row would decide a slope that is fitted to them.
    """
    log_p = log_softmax(logits)
    e = np.exp(log_p)
    top = e.argmax(axis=1)
    here = np.arange(len(e))
    rest = 1.0 - e
    others = e.copy()
    others[here, top] = 0.0
    rest[here, top] = others.sum(axis=1)
    with np.errstate(divide="ignore"):
        log_rest = np.log(rest)
    return np.maximum(log_p, LOWEST_LOG), np.maximum(log_rest, LOWEST_LOG)


def row_dots(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum_k a_ik b_ik of each row; through BLAS where numpy offers it."""
    if hasattr(np, "vecdot"):
        dots: NDArray[np.float64] = np.vecdot(a, b)
        return dots
    products: NDArray[np.float64] = np.einsum("ij,ij->i", a, b)
    return products
