"""Metrics of predicted probabilities, each `metric(probs, labels, *, bins=15, weights=None)`.

Symbols: p (N, C) probabilities; y labels; w row weights (None: equal); predicted class argmax p, the first of equals;
confidence c = max p; correct r = [argmax p = y]. Sums run in float64 whatever the precision of p. Results are shares
(0.05 is 5 %), not percent. With weights every mean over rows is a weighted mean.

Refused with a DataError: NaN, negative values, rows that do not sum to one (logits, usually), labels out of range, no
rows. Defined: confidence exactly 1 lies in the last bin, 0 in the first; empty bins carry no weight; classes that do
not occur are left out of means over classes (they count in classwise ECE, where p alone defines the error); one class
and one row are fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import Floats, Labels, Weights, check_labels, check_probs, check_weights
from calibrant.calibration.metrics.ranking import (
    area_under_risk_coverage,
    auroc_of,
    risk_at_coverage,
)
from calibrant.calibration.metrics.smooth import smooth_ece_of
from calibrant.calibration.statistics.bins import Bins, check_bins, equal_mass, equal_width, equal_width_index, gather

_COARSE = 1.0 - 2.0**-16  # from here on a step of float32 is more than 0.4 % of what is missing to 1


@dataclass(frozen=True)
class Rows:
    """Checked input and what the top-label metrics read off it."""

    probs: Floats
    labels: Labels
    weights: Weights | None
    predicted: NDArray[np.int64]
    confidence: Floats
    correct: NDArray[np.bool_]

    def mean(self, values: NDArray[np.float64]) -> float:
        if self.weights is None:
            return float(values.mean())
        return float(np.dot(self.weights, values) / self.weights.sum())

    def bins(self, bins: int) -> Bins:
        return equal_width(self.confidence, self.correct, bins, self.weights)

    @property
    def ranking(self) -> Floats:
        """What orders the rows: the confidence, told apart where float32 cannot hold it.

        Close to 1 a float32 confidence is a step of a coarse stair (a tenth of a sharp model's rows may be exactly 1),
        while the probabilities of the other classes still say to seven digits how much is missing.
        """
        if self.probs.dtype != np.float32:
            return self.confidence
        key = self.confidence.astype(np.float64)
        sure = np.flatnonzero(key >= _COARSE)
        others = self.probs[sure].astype(np.float64)
        others[np.arange(len(sure)), self.predicted[sure]] = 0.0
        key[sure] = 1.0 - others.sum(axis=1)
        return key

    def mass_bins(self, bins: int) -> Bins:
        return equal_mass(self.confidence, self.correct, bins, self.weights)


def read_rows(probs: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Rows:
    p = check_probs(probs)
    y = check_labels(labels, *p.shape)
    predicted = p.argmax(axis=1)
    confidence = p[np.arange(len(p)), predicted]
    return Rows(p, y, check_weights(weights, len(p)), predicted, confidence, predicted == y)


# ---- how often it is right ----


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


# ---- proper scores ----


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


# ---- calibration ----


def ece(probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None) -> float:
    """Expected calibration error of the top label, sum_b s_b |mean confidence - accuracy|, equal-width bins (lo, hi].

    Guo et al. 2017. In words: how far, on average, what the model claims is from how often it is right.
    """
    return ece_of(read_rows(probs, labels, weights).bins(bins))


def adaptive_ece(
    probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None,
    scheme: Literal["split", "published"] = "split",
) -> float:  # fmt: skip
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
    probs: ArrayLike, labels: ArrayLike, *, bins: int = 15, weights: ArrayLike | None = None,
    scheme: Literal["all", "published"] = "all",
) -> float:  # fmt: skip
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


def smooth_ece(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """SmoothECE of the top label (Blasiok & Nakkiran 2023), without bins; see `smooth.smooth_ece_of`."""
    rows = read_rows(probs, labels, weights)
    confidence = rows.confidence.astype(np.float64)
    return smooth_ece_of(confidence, rows.correct - confidence, rows.weights).value


# ---- ranking by confidence ----


def aurc(
    probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None,
    ties: Literal["average", "order"] = "average",
) -> float:  # fmt: skip
    """Area under the risk-coverage curve: mean over k = 1..N of the error rate among the k most confident rows.

    Rows of equal confidence count as if in every order ("average"), so shuffling changes nothing; "order" takes them as
    they stand, as common code does.
    """
    rows = read_rows(probs, labels, weights)
    return area_under_risk_coverage(rows.ranking, ~rows.correct, rows.weights, ties=ties)


def selective_accuracy(
    probs: ArrayLike, labels: ArrayLike, *, coverage: float = 0.8, weights: ArrayLike | None = None
) -> float:
    """Accuracy among the most confident `coverage` of the rows (ceil(coverage N) of them; ties as in `aurc`)."""
    rows = read_rows(probs, labels, weights)
    return 1.0 - risk_at_coverage(rows.ranking, ~rows.correct, coverage, rows.weights)


def auroc(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Failure detection: probability that a right row is more confident than a wrong one, ties half.

    NaN when all rows are right or all are wrong: there is nothing to tell apart.
    """
    rows = read_rows(probs, labels, weights)
    right, w, key = rows.correct, rows.weights, rows.ranking
    return auroc_of(
        key[right], key[~right],
        None if w is None else w[right], None if w is None else w[~right],
    )  # fmt: skip


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


def _times(correct: NDArray[np.bool_], weights: Weights | None) -> NDArray[np.float64]:
    return correct.astype(np.float64) if weights is None else weights * correct
