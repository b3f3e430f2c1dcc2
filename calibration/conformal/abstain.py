"""When to abstain: a confidence above which at most a wished share of the answers is wrong.

The guarantee is over calibration sets: in 95 of 100 of them the error rate of the answers is at most r, although the
threshold was searched for. The search is a fallback chain of tests (Wiens 2003; a learn-then-test procedure, as
Angelopoulos et al. 2021 call them). Of the rows sorted by confidence, for counts m from strict to lax,

    p(m) = P(Binomial(m - 1, r) <= errors among the m - 1 rows strictly above the m-th confidence),

exact because those rows are independent draws given that confidence. Of the 5 %, one twelfth enters at each of 12
evenly spaced counts; a test that passes hands all it has to the next, one that fails ends its chain, and the next
start begins anew. The answer is the laxest threshold that passed. A limit that is taken pointwise and then searched is
broken by 14 to 26 % of calibration sets instead of 5.

Under a target prior rows weigh w(y) = pi_target(y) / pi_rows(y) and counts become effective ones: n_e = (sum w)^2 /
sum w^2, k_e = n_e times the weighted error rate, p = I_(1-r)(n_e - k_e, k_e + 1), which is the binomial tail where all
weights are equal. `thinned` is exact there: rows are kept with probability proportional to their weight.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import check_labels, check_probs
from calibrant.errors import ConfigError
from calibrant.shares import class_weights

log = logging.getLogger(__name__)
Vector = NDArray[np.float64]
LEVEL = 0.05  # share of calibration sets whose threshold may break the promise
COUNTS, STARTS = 100, 12
FEW = 100  # effective rows below which the approximation of weighted counts was not tried


@dataclass(frozen=True)
class Abstention:
    """Answer when the confidence is at least `threshold`.

    `coverage` and `risk`: share answered and error rate of the answers as seen. `risk_high`: the error rate that is
    not exceeded in 95 of 100 calibration sets.
    """

    threshold: float
    coverage: float
    risk: float
    risk_high: float
    rows: int
    effective_rows: float | None = None  # of the answers, under a target prior

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Sorted:
    """Rows from the surest to the least sure; `count` rows are strictly surer than `confidence[count]`."""

    confidence: Vector
    weight: Vector
    wrong: Vector  # weight of the rows that are wrong

    @classmethod
    def of(
        cls, probs: ArrayLike, labels: ArrayLike, target_prior: ArrayLike | None, thinned: bool = False, seed: int = 0
    ) -> _Sorted:
        p = check_probs(probs)
        y = check_labels(labels, *p.shape)
        predicted = p.argmax(axis=1)
        confidence, wrong = p[np.arange(len(p)), predicted].astype(np.float64), predicted != y
        w = np.ones(len(y))
        if target_prior is not None:
            w = class_weights(np.bincount(y, minlength=p.shape[1]), target_prior)[y]
            if thinned:
                kept = np.random.default_rng(seed).random(len(w)) * w.max() < w
                confidence, wrong, w = confidence[kept], wrong[kept], np.ones(int(kept.sum()))
        order = np.argsort(-confidence, kind="stable")
        return cls(confidence[order], w[order], (w * wrong)[order])

    def above(self, counts: NDArray[np.int64]) -> tuple[Vector, Vector]:
        """Effective rows and errors among the first `counts` rows."""
        total, squares, wrong = (np.append(0.0, np.cumsum(v)) for v in (self.weight, self.weight**2, self.wrong))
        n = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)[counts]
        rate = np.divide(wrong, total, out=np.zeros_like(total), where=total > 0)[counts]
        return n, n * rate

    def abstention(self, threshold: float, count: int, risk_high: float, weighted: bool) -> Abstention:
        total, wrong = float(self.weight[:count].sum()), float(self.wrong[:count].sum())
        effective = float(self.above(np.array([count]))[0][0]) if weighted else None
        return Abstention(
            threshold,
            total / float(self.weight.sum()),
            wrong / total if total else 0.0,
            risk_high,
            len(self.confidence),
            effective,
        )


def abstain_for_risk(
    probs: ArrayLike,
    labels: ArrayLike,
    *,
    risk: float,
    among: int = 1,
    target_prior: ArrayLike | None = None,
    thinned: bool = False,
    seed: int = 0,
) -> Abstention:
    """The lowest threshold that the chain proves to keep the error rate of the answers at `risk` or below.

    `among`: how many such wishes (rates, groups) are made of these rows; the 5 % are divided among them.
    `target_prior`: class shares where the model is used, with probabilities of that prior; `thinned` is exact, and
    answers less.
    """
    rows = _Sorted.of(probs, labels, target_prior, thinned, seed)
    return _proven(rows, risk, among, weighted=target_prior is not None)


def abstain_for_risk_of_answers(confidence: Vector, wrong: NDArray[np.bool_], *, risk: float) -> Abstention:
    """The same of rows that all weigh alike, by their confidences and which of them are wrong."""
    order = np.argsort(-confidence, kind="stable")
    rows = _Sorted(confidence[order], np.ones(len(order)), wrong[order].astype(np.float64))
    return _proven(rows, risk, 1, weighted=False)


def _proven(rows: _Sorted, risk: float, among: int, *, weighted: bool) -> Abstention:
    if not 0 < risk < 1:
        raise ConfigError(f"risk is {risk}, expected between 0 and 1")
    if among < 1:
        raise ValueError(f"among is {among}, expected at least 1")
    n, level, least = len(rows.confidence), LEVEL / among, fewest(risk, among)
    if n <= least:
        raise ConfigError(
            f"{n} rows cannot show an error rate of {risk:g}: {least + 1} are needed, and {least} of them answered "
            "without an error",
            fix="give more labelled rows, or wish for a higher rate",
        )
    counts = _counts(rows.confidence, least)
    effective, errors = rows.above(counts)
    passed = _laxest(_p_values(effective, errors, risk), level)
    if passed is None:
        raise ConfigError(
            f"no threshold is shown to keep the error rate at {risk:g} in 95 of 100 calibration sets",
            fix=f"{least} of the surest answers without an error would do; wish for a higher rate, or give more rows",
        )
    if weighted and effective[passed] < FEW:
        log.warning(
            "the threshold rests on %.0f effective rows of the target prior; below %d its promise was not tried",
            effective[passed],
            FEW,
        )
    count = int(counts[passed])
    return rows.abstention(_just_above(float(rows.confidence[count])), count, risk, weighted)


def abstain_for_coverage(
    probs: ArrayLike, labels: ArrayLike, *, coverage: float, target_prior: ArrayLike | None = None
) -> Abstention:
    """The highest threshold that still answers at least `coverage` of the rows.

    Errors take no part in the choice, so `risk_high` is the exact upper 95 % limit (Clopper and Pearson 1934).
    """
    if not 0 < coverage <= 1:
        raise ConfigError(f"coverage is {coverage}, expected more than 0 and at most 1")
    rows = _Sorted.of(probs, labels, target_prior)
    share = np.cumsum(rows.weight) / rows.weight.sum()
    threshold = float(rows.confidence[np.flatnonzero(share >= coverage - 1e-12)[0]])
    count = int((rows.confidence >= threshold).sum())
    (effective,), (errors,) = rows.above(np.array([count]))
    from scipy.special import betaincinv

    high = 1.0 if errors >= effective else float(betaincinv(errors + 1, effective - errors, 1 - LEVEL))
    return rows.abstention(threshold, count, high, target_prior is not None)


def fewest(risk: float, among: int = 1) -> int:
    """Answers without an error that the first test needs to pass: the smallest k with (1 - r)^k <= level / 12."""
    return int(np.ceil(np.log(LEVEL / among / STARTS) / np.log1p(-risk) - 1e-9))


def _counts(confidence: Vector, least: int) -> NDArray[np.int64]:
    """Rows strictly above each tried threshold: geometric from `least` on, moved to where the confidence changes."""
    m = np.unique(np.geomspace(least, len(confidence) - 1, COUNTS).round().astype(np.int64))
    first = np.searchsorted(-confidence, -confidence[m], side="left")  # of the rows that are as sure as the m-th
    counts: NDArray[np.int64] = np.unique(first)
    return counts[counts >= least]


def _p_values(rows: Vector, errors: Vector, risk: float) -> Vector:
    from scipy.special import betainc

    right = np.maximum(rows - errors, 1e-12)
    return np.where(errors >= rows, 1.0, betainc(right, errors + 1, 1 - risk))


def _laxest(p: Vector, level: float) -> int | None:
    """Index of the last test that passes."""
    starts = set(np.linspace(0, len(p) - 1, STARTS).round().astype(int).tolist()) if len(p) else set()
    budget, found = 0.0, None
    for i, value in enumerate(p):
        budget += level / STARTS if i in starts else 0.0
        if value <= budget:
            found = i
        else:
            budget = 0.0
    return found


def _just_above(confidence: float) -> float:
    """The smallest float32 above: the rows strictly surer answer, and the server compares float32 with >=."""
    near = np.float32(confidence)
    return float(near if near > confidence else np.nextafter(near, np.float32(2.0)))
