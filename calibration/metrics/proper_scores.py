"""Scores that only the true probabilities make best: negative log-likelihood and the Brier score with its parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibration.metrics.binned_errors import class_bins
from calibrant.calibration.metrics.rows import read_rows


def nll(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None, floor: float = 0.0) -> float:
    """Negative log-likelihood, -mean log max(p_y, floor), natural log.

    No floor by default: infinite where a label had probability 0.
    """
    rows = read_rows(probs, labels, weights)
    own = np.maximum(rows.probs[np.arange(len(rows.labels)), rows.labels].astype(np.float64), floor)
    with np.errstate(divide="ignore"):
        loss = -np.log(own)
    if rows.weights is not None:
        loss[rows.weights == 0] = 0.0  # 0 * inf
    return rows.mean(loss)


def brier(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """mean of sum_k (p_k - [y = k])^2, from 0 to 2."""
    rows = read_rows(probs, labels, weights)
    p = rows.probs.astype(np.float64)
    own = p[np.arange(len(rows.labels)), rows.labels]
    return rows.mean(np.einsum("ij,ij->i", p, p) - own**2 + (1 - own) ** 2)


@dataclass(frozen=True)
class BrierParts:
    """brier = reliability - resolution + uncertainty + within; reliability is what calibration can remove."""

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    within: float


def brier_decomposition(
    probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None
) -> BrierParts:
    """The Brier score split by class and equal-width bin of p_k.

    reliability = sum_k sum_b s_kb (mean p - mean [y=k])^2; resolution = sum_k sum_b s_kb (mean [y=k] - share_k)^2;
    uncertainty = sum_k share_k (1 - share_k), with s_kb the share of rows in bin b of class k. `within` is what the
    spread of p inside bins adds, so the parts sum to the score exactly (Murphy 1973; the term: Stephenson 2008).
    """
    rows = read_rows(probs, labels, weights)
    reliability = resolution = uncertainty = 0.0
    for table in class_bins(rows, bins):
        share = float(table.correct_sum.sum() / table.weight.sum())
        reliability += float((table.share * table.gap**2).sum())
        resolution += float((table.share * (table.accuracy - share) ** 2).sum())
        uncertainty += share * (1 - share)
    score = brier(probs, labels, weights=weights)
    within = score - (reliability - resolution + uncertainty)
    return BrierParts(score, reliability, resolution, uncertainty, within)
