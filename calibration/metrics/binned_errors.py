"""Calibration errors read off bins: what is claimed in a bin against how often it is right.

The functions ending in `_of` take the bins themselves; the one-pass statistics share them with the metrics on rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.metrics.rows import Rows, read_rows
from calibrant.calibration.statistics.bins import Bins, check_bins, equal_mass, equal_width, equal_width_index, gather


def ece(probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None) -> float:
    """Expected calibration error of the top label, sum_b s_b |mean confidence - accuracy|, equal-width bins (lo, hi].

    Guo et al. 2017. In words: how far, on average, what the model claims is from how often it is right.
    """
    return ece_of(read_rows(probs, labels, weights).bins(bins))


def ece_terms(confidence: NDArray[np.floating], correct: NDArray[np.bool_], *, bins: int = 15) -> NDArray[np.float64]:
    """One number a row whose mean is the ECE: sign_b (confidence - correct), with the sign of its bin's gap held.

    The ECE is its mean exactly; where the rows are drawn anew, to first order.
    """
    side = np.sign(equal_width(confidence, correct, bins, None).gap)[equal_width_index(confidence, bins)]
    terms: NDArray[np.float64] = side * (confidence.astype(np.float64) - correct)
    return terms


def adaptive_ece(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    weights: ArrayLike | None = None,
    scheme: Literal["split", "published"] = "split",
) -> float:
    """ECE over bins that hold equally many rows.

    "split": stable sort by confidence and numpy.array_split, empty parts carry nothing. "published": the widely used
    evaluator, with edges interpolated among the sorted confidences and intervals (lo, hi]; it leaves every row at the
    lowest confidence out of all bins (all confidences 1 at 60 % accuracy: 0 there, 0.4 here).
    """
    rows = read_rows(probs, labels, weights)
    if scheme == "split":
        return ece_of(rows.mass_bins(bins))
    if scheme != "published":
        raise ValueError(f'scheme is {scheme!r}, expected "split" or "published"')
    n, ordered = len(rows.labels), np.sort(rows.confidence)
    edges = np.interp(np.linspace(0, n, check_bins(bins) + 1), np.arange(n), ordered)
    inside = (rows.confidence > edges[0]) & (rows.confidence <= edges[-1])
    index = np.searchsorted(edges[1:-1], rows.confidence[inside], side="left")
    kept = None if rows.weights is None else rows.weights[inside]
    table = gather(index, rows.confidence[inside], rows.correct[inside], kept, bins)
    whole = float(n) if rows.weights is None else float(rows.weights.sum())
    return float(np.abs(table.confidence_sum - table.correct_sum).sum() / whole)


def classwise_ece(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    bins: int = 15,
    weights: ArrayLike | None = None,
    scheme: Literal["all", "published"] = "all",
) -> float:
    """Mean over classes of the equal-width ECE of p_k against [y = k] (Kull et al. 2019).

    "all" averages over all C classes and puts probability 0 into the first bin. "published": the widely used evaluator
    averages over classes 0..max label only and drops probabilities of exactly 0.
    """
    rows = read_rows(probs, labels, weights)
    if scheme == "all":
        return float(np.mean([ece_of(table) for table in class_bins(rows, bins)]))
    if scheme != "published":
        raise ValueError(f'scheme is {scheme!r}, expected "all" or "published"')
    whole = float(len(rows.labels)) if rows.weights is None else float(rows.weights.sum())
    errors = []
    for k in range(int(rows.labels.max()) + 1):
        kept = rows.probs[:, k] > 0
        p, positive = rows.probs[kept, k], rows.labels[kept] == k
        table = equal_width(p, positive, bins, None if rows.weights is None else rows.weights[kept])
        errors.append(float(np.abs(table.confidence_sum - table.correct_sum).sum()) / whole)
    return float(np.mean(errors))


def mce(
    probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None, min_rows: int = 1
) -> float:
    """Largest |mean confidence - accuracy| of an equal-width bin with at least `min_rows` rows.

    Without a minimum the largest gap is often that of a bin of one to three rows, i.e. noise.
    """
    table = read_rows(probs, labels, weights).bins(bins)
    kept = (table.rows >= max(1, min_rows)) & (table.weight > 0)
    return float(np.abs(table.gap[kept]).max(initial=0.0))


@dataclass(frozen=True)
class OverUnder:
    """The two halves of the ECE: bins that claim too much, and bins that claim too little."""

    over: float
    under: float


def over_under_ece(
    probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None
) -> OverUnder:
    """O-ECE = sum_b s_b max(conf_b - acc_b, 0), U-ECE = sum_b s_b max(acc_b - conf_b, 0); together the ECE."""
    return over_under_of(read_rows(probs, labels, weights).bins(bins))


def rms_calibration_error(
    probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None
) -> float:
    """sqrt(sum_b s_b gap_b^2) over equal-width bins."""
    return rms_of(read_rows(probs, labels, weights).bins(bins))


def debiased_ece(probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None) -> float:
    """Squared calibration error without the part that noise alone gives, as sign * sqrt(|value|); equal-mass bins.

    sum_b s_b (gap_b^2 - a_b (1 - a_b) / (n_b - 1)), a_b the accuracy and n_b the rows of the bin (Kumar et al. 2019).
    Negative: not to be told from calibrated. With weights n_b is the effective number (sum w)^2 / sum w^2.
    Differs: not clipped at 0; a bin of one row has nothing to subtract.
    """
    rows = read_rows(probs, labels, weights)
    table = rows.mass_bins(bins)
    return debiased_of(table, effective_rows(rows, table, bins))


def unweighted_ece(probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None) -> float:
    """Mean gap over non-empty equal-width bins, each counting the same: what netcal calls ACE."""
    table = read_rows(probs, labels, weights).bins(bins)
    return float(np.abs(table.gap[table.weight > 0]).mean())


# ---- the same from bins, shared with the one-pass statistics ----


def ece_of(table: Bins) -> float:
    return float(np.abs(table.total_gap).sum())


def over_under_of(table: Bins) -> OverUnder:
    gap = table.total_gap
    return OverUnder(float(np.maximum(gap, 0.0).sum()), float(np.maximum(-gap, 0.0).sum()))


def rms_of(table: Bins) -> float:
    return float(np.sqrt((table.share * table.gap**2).sum()))


def debiased_of(table: Bins, effective: NDArray[np.float64]) -> float:
    noise = np.divide(
        table.accuracy * (1 - table.accuracy), effective - 1, out=np.zeros_like(effective), where=effective > 1
    )
    value = float((table.share * (table.gap**2 - noise)).sum())
    return float(np.sign(value) * np.sqrt(abs(value)))


def effective_rows(rows: Rows, table: Bins, bins: int) -> NDArray[np.float64]:
    """Rows of equal weight that would be as informative: (sum w)^2 / sum w^2 for each bin."""
    if rows.weights is None:
        return table.rows.astype(np.float64)
    squared = equal_mass(rows.confidence, rows.weights, bins, rows.weights).correct_sum
    return np.divide(table.weight**2, squared, out=np.zeros_like(squared), where=squared > 0)


def class_bins(rows: Rows, bins: int) -> list[Bins]:
    """Equal-width bins of p_k against [y = k], for each class."""
    bins = check_bins(bins)
    return [
        gather(equal_width_index(rows.probs[:, k], bins), rows.probs[:, k], rows.labels == k, rows.weights, bins)
        for k in range(rows.probs.shape[1])
    ]
