"""Served probabilities with labels drawn from them, or from others."""

from __future__ import annotations

import numpy as np


def stream(n: int, rng: np.random.Generator, *, sharper: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities, and labels drawn from them (from flatter ones where the model is over-confident)."""
    logits = rng.normal(0, 2, (n, 5))
    true = np.exp(logits / sharper)
    true /= true.sum(axis=1, keepdims=True)
    labels = (rng.random((n, 1)) > true.cumsum(axis=1)).sum(axis=1)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return log_p, np.minimum(labels, 4)


def misfit(n: int, rng: np.random.Generator, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Served probabilities that favour some classes, as those of real models do."""
    log_p, labels = stream(n, rng)
    moved = log_p - sign * np.array([0.5, -0.5, 0.25, -0.25, 0.0])
    return moved - np.log(np.exp(moved).sum(axis=1, keepdims=True)), labels


def calm(n: int, classes: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities as over-confident and biased as those of real models, for as long as the stream runs.

    Labels from softmax(0.8 log p + bias), the biases of standard deviation 0.25 and always the same.
    """
    bias = 0.25 * np.random.default_rng(classes).standard_normal(classes)
    logits = rng.normal(0, 2, (n, classes))
    true = np.exp(0.8 * logits + bias)
    true /= true.sum(axis=1, keepdims=True)
    labels = (rng.random((n, 1)) > true.cumsum(axis=1)).sum(axis=1)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), np.minimum(labels, classes - 1)
