"""How often each class occurs among unlabelled rows, with an interval, and whether that is another prior at all.

The likeliest prior of the served rows (`mixture`) under probabilities that are right class by class (`bias_map`, fitted
here on the labelled rows), checked against an estimate that needs no right probabilities (`confusion`).

    shifted:  D' W^-1 D  beyond the 99 % point of chi2(C - 1),   D = pi - pi0,
              W = covariance of pi + (diag pi0 - pi0 pi0') / labelled rows

Otherwise the labelled prior is kept: where nothing has changed, an estimate that is applied anyway only adds noise.
The likelihood ratio would forget that the probabilities are estimates as well and calls a shift in .38 of the calm
cases. Where the intervals of the two estimates do not meet, or the served rows are surer or less sure than labelled
rows in the estimated shares are, the pictures have changed and not only the shares: that is no label shift, and nothing
is applied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import check_labels, check_logits
from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.label_shift.bias_map import fit_bias_map
from calibrant.calibration.label_shift.confusion import prior_by_confusion
from calibrant.calibration.label_shift.mixture import likeliest_prior, prior_covariance, squared_misfit
from calibrant.calibration.softmax import FLOOR_DEPTH, log_softmax
from calibrant.errors import DataError

Array = NDArray[np.float64]
FEWEST_ROWS = 50
SIGNIFICANCE = 0.01
OTHER_PICTURES, BINS = 1e-4, 10
POOR = 0.1  # smallest singular value of the confusion, below which two classes are as good as one
WIDE = 0.1  # half an interval; beyond it, and beyond the share itself, nothing is known of the class


@dataclass(frozen=True)
class PriorEstimate:
    """`prior` is what the rows say; `target` is what to apply: the labelled prior where no shift can be told."""

    prior: Array  # (C,)
    low: Array
    high: Array
    base: Array  # shares of the labelled rows
    rows: int
    labelled_rows: int
    p_value: float  # of no shift
    consistent: bool  # the two estimates agree, and the rows are as sure as such shares make them
    smallest: float  # singular value of the confusion
    mixed: tuple[int, int]  # the classes that are told apart the least

    @property
    def shifted(self) -> bool:
        return self.p_value < SIGNIFICANCE and self.consistent

    @property
    def target(self) -> Array:
        return self.prior if self.shifted else self.base

    @property
    def unknown(self) -> tuple[int, ...]:
        """Classes whose interval says next to nothing."""
        half = (self.high - self.low) / 2
        return tuple(np.flatnonzero(half > np.maximum(self.prior, WIDE)).tolist())

    def sentences(self, names: Sequence[str]) -> list[str]:
        """For people: what was found, and what to be careful about."""
        wide = 100 * float((self.high - self.low).max()) / 2
        if not self.consistent:
            said = [
                "the pictures themselves have changed, not only how often each class comes: no mixture of the labelled "
                "classes looks like these rows, so their shares cannot be estimated. The prior is left as it was"
            ]
        elif self.shifted:
            most = int(np.argmax(np.abs(self.prior - self.base)))
            said = [
                f"the class shares have changed: {names[most]} from {100 * self.base[most]:.1f} % to "
                f"{100 * self.prior[most]:.1f} % ({100 * self.low[most]:.1f} .. {100 * self.high[most]:.1f})"
            ]
        else:
            said = [
                f"no change of the class shares can be told from {self.rows:,} rows; each may be off by up to "
                f"{wide:.1f} points. The prior is left as it was"
            ]
        if self.smallest < POOR:
            first, second = (names[k] for k in self.mixed)
            said.append(f"the model hardly tells {first} from {second}: trust the sum of their shares, not each")
        if self.unknown:
            some = ", ".join(names[k] for k in self.unknown[:3]) + (" ..." if len(self.unknown) > 3 else "")
            said.append(f"next to nothing is known of the share of {some}: more rows are needed")
        return said

    def to_dict(self) -> dict[str, Any]:
        return {
            "prior": self.prior.tolist(), "low": self.low.tolist(), "high": self.high.tolist(),
            "base": self.base.tolist(), "rows": self.rows, "labelled_rows": self.labelled_rows,
            "p_value": self.p_value, "shifted": self.shifted, "consistent": self.consistent,
            "smallest_singular_value": self.smallest, "mixed": list(self.mixed), "unknown": list(self.unknown),
        }  # fmt: skip


class PriorEstimator:
    """What labelled rows teach, once, about the prior of any others of the same model."""

    def __init__(self, logits: ArrayLike, labels: ArrayLike) -> None:
        """logits (N, C), labels (N,): each class at least once."""
        z = check_logits(logits)
        y = check_labels(labels, len(z), z.shape[1])
        absent = np.flatnonzero(np.bincount(y, minlength=z.shape[1]) == 0)
        if len(absent):
            raise DataError(
                f"no labelled row of class {int(absent[0])} ({len(absent)} such classes), "
                "so its share cannot be estimated",
                fix="give labelled rows of every class",
            )
        self._known, self._labels = _log_p(z), y
        self._map = fit_bias_map(self._known, y)
        self._calibrated = self._map.probabilities(self._known)

    def __call__(self, served: ArrayLike) -> PriorEstimate:
        """served (n, C): logits of the same model, no labels needed. 95 % intervals, one class at a time."""
        rows = len(np.asarray(served))
        if rows < FEWEST_ROWS:
            raise DataError(
                f"{rows} rows are too few to estimate class shares from", fix=f"give at least {FEWEST_ROWS}"
            )
        unlabelled, base = check_logits(served), self._map.shares
        if unlabelled.shape[1] != len(base):
            raise DataError(f"the served rows have {unlabelled.shape[1]} classes, the labelled ones {len(base)}")
        asked = _log_p(unlabelled)
        calibrated = self._map.probabilities(asked)
        ratios = calibrated / base
        prior = likeliest_prior(ratios)
        covariance = prior_covariance(ratios, prior, asked, self._map.covariance)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        misfit = squared_misfit(self._calibrated / base, self._labels, ratios, prior)
        half = Z95 * np.sqrt(deviation**2 + misfit) + 0.5 / len(asked)
        other = prior_by_confusion(self._calibrated, self._labels, calibrated)
        # All classes at once: each of 2 C limits may be passed in a share of 5 % / C of the cases.
        factor = NormalDist().inv_cdf(1 - 0.025 / len(prior))
        reach = factor * (deviation + np.sqrt(np.maximum(np.diag(other.covariance), 0.0))) + 0.5 / len(asked)
        agree = bool((np.abs(prior - other.prior) <= reach).all())
        sure = _sureness_p_value(self._calibrated.max(axis=1), self._labels, calibrated.max(axis=1), prior)
        return PriorEstimate(
            prior,
            np.maximum(prior - half, 0.0),
            np.minimum(prior + half, 1.0),
            base,
            len(asked),
            len(self._labels),
            _p_value(prior, base, covariance, len(self._labels)),
            agree and sure >= OTHER_PICTURES,
            other.smallest,
            other.mixed,
        )


def estimate_prior(logits: ArrayLike, labels: ArrayLike, served: ArrayLike) -> PriorEstimate:
    """logits (N, C) with labels (N,) of held-out rows; served (n, C) logits of the same model, no labels needed.

    Both through the same map: raw logits, or both as deployed.
    """
    return PriorEstimator(logits, labels)(served)


def _log_p(logits: NDArray[np.floating[Any]]) -> Array:
    return np.maximum(log_softmax(logits), -FLOOR_DEPTH)


def _p_value(prior: Array, base: Array, covariance: Array, labelled: int) -> float:
    """Wald's test of prior = base, both of them estimates."""
    apart = (prior - base)[:-1]
    whole = (covariance + (np.diag(base) - np.outer(base, base)) / labelled)[:-1, :-1]
    return _beyond(apart, whole)


def _sureness_p_value(known: Array, labels: NDArray[np.int64], served: Array, prior: Array) -> float:
    """Are the served rows as sure as labelled rows would be, mixed by `prior`? Shares of bins of confidence compared.

    Bins are tenths of the labelled rows so mixed. Variance: of the served shares, and of those of each labelled class.
    """
    counts = np.bincount(labels, minlength=len(prior))
    weight = (prior / counts)[labels]
    order = np.argsort(known, kind="stable")
    reached = np.cumsum(weight[order])
    edges = np.unique(known[order][np.searchsorted(reached, np.arange(1, BINS) / BINS).clip(max=len(known) - 1)])
    bins = len(edges) + 1
    expected = np.zeros((len(prior), bins))
    np.add.at(expected, (labels, np.searchsorted(edges, known, side="right")), 1.0)
    expected /= counts[:, None]
    seen = np.bincount(np.searchsorted(edges, served, side="right"), minlength=bins) / len(served)
    mixed = prior @ expected
    spread = (np.diag(mixed) - np.outer(mixed, mixed)) / len(served)
    factor = prior**2 / np.maximum(counts - 1, 1)
    spread = spread + np.diag(factor @ expected) - (expected * factor[:, None]).T @ expected
    return _beyond((seen - mixed)[:-1], spread[:-1, :-1])


def _beyond(apart: Array, covariance: Array) -> float:
    """P(chi2 > apart' covariance^-1 apart), by Wilson and Hilferty: the cube root of chi2 / df is nearly normal."""
    freedom = len(apart)
    if freedom == 0:
        return 1.0
    statistic = float(apart @ np.linalg.lstsq(covariance, apart, rcond=None)[0])
    root = (max(statistic, 0.0) / freedom) ** (1 / 3)
    return 0.5 * math.erfc((root - (1 - 2 / (9 * freedom))) / math.sqrt(4 / (9 * freedom)))
