"""How well a score sorts: risk against coverage, and areas under ROC curves.

Ties are taken as if the equal rows stood in every order, so no result depends on the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.metrics.rows import read_rows
from calibrant.errors import ConfigError

Scores = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class RiskCoverage:
    """Distinct confidences from high to low: weight and errors accepted when accepting all rows at least so sure."""

    threshold: NDArray[np.float64]
    weight: NDArray[np.float64]
    errors: NDArray[np.float64]

    @property
    def coverage(self) -> NDArray[np.float64]:
        share: NDArray[np.float64] = self.weight / self.weight[-1]
        return share

    @property
    def risk(self) -> NDArray[np.float64]:
        return np.divide(self.errors, self.weight, out=np.zeros_like(self.errors), where=self.weight > 0)


def risk_coverage(confidence: Scores, wrong: NDArray[Any], weights: NDArray[np.float64] | None = None) -> RiskCoverage:
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    last = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]), len(ordered) - 1)
    w = np.ones(len(order)) if weights is None else weights[order]
    return RiskCoverage(
        ordered[last].astype(np.float64), np.cumsum(w)[last], np.cumsum(w * np.asarray(wrong, np.float64)[order])[last]
    )


def area_under_risk_coverage(
    confidence: Scores,
    wrong: NDArray[Any],
    weights: NDArray[np.float64] | None = None,
    *,
    ties: Literal["average", "order"] = "average",
) -> float:
    """sum_k w_k R_k / sum_k w_k with R_k the error rate of the k most confident rows."""
    if ties not in ("average", "order"):
        raise ValueError(f'ties is {ties!r}, expected "average" or "order"')
    order = np.argsort(-confidence, kind="stable")
    w = np.ones(len(order)) if weights is None else weights[order]
    bad = np.asarray(wrong, np.float64)[order]
    if ties == "average":
        # Within a block of equals every row counts as the block's average row.
        ordered = confidence[order]
        block = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])
        total = np.bincount(block, w)
        bad = np.divide(np.bincount(block, w * bad), total, out=np.zeros_like(total), where=total > 0)[block]
    weight, errors = np.cumsum(w), np.cumsum(w * bad)
    risk = np.divide(errors, weight, out=np.zeros_like(errors), where=weight > 0)
    return float(np.dot(w, risk) / weight[-1])


def risk_at_coverage(
    confidence: Scores, wrong: NDArray[Any], coverage: float, weights: NDArray[np.float64] | None = None
) -> float:
    """Error rate among the most confident `coverage` of the weight; a block of ties counts in proportion."""
    if not 0 < coverage <= 1:
        raise ConfigError(f"coverage is {coverage}, expected more than 0 and at most 1")
    curve = risk_coverage(confidence, wrong, weights)
    total = curve.weight[-1]
    # Whole rows: ceil(coverage N); the small term keeps 0.8 * 5 = 4.000000000000001 from becoming 5 rows.
    wanted = coverage * total if weights is not None else np.ceil(coverage * total - 1e-9)
    return float(np.interp(wanted, np.append(0, curve.weight), np.append(0, curve.errors)) / wanted)


def auroc_of(
    positive: Scores,
    negative: Scores,
    positive_weights: NDArray[np.float64] | None = None,
    negative_weights: NDArray[np.float64] | None = None,
) -> float:
    """P(score of a positive > score of a negative) + P(equal) / 2; NaN when either side is empty."""
    if len(positive) == 0 or len(negative) == 0:
        return float("nan")
    values, index = np.unique(np.concatenate([positive, negative]), return_inverse=True)
    plus = np.bincount(index[: len(positive)], positive_weights, len(values)).astype(np.float64)
    minus = np.bincount(index[len(positive) :], negative_weights, len(values)).astype(np.float64)
    below = np.cumsum(minus) - minus
    total = plus.sum() * minus.sum()
    return float(np.dot(plus, below + minus / 2) / total) if total > 0 else float("nan")


# ---- from probabilities and labels ----


def aurc(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    ties: Literal["average", "order"] = "average",
) -> float:
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
        key[right],
        key[~right],
        None if w is None else w[right],
        None if w is None else w[~right],
    )
