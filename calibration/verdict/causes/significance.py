"""Can it be chance that so many rows are right? p values without scipy, so that the server may ask."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.beta_binomial import log_gamma

_MANY, _VARIED = 30, 5.0  # rows and variance from which on the count is as good as normal


def two_sided(claimed: float, right: float, variance: float, rows: int) -> float:
    """p of `right` rows where `claimed` = sum c were to be expected, with variance sum c (1 - c).

    Normal from 30 rows and a variance of 5 on; below exact binomial with the mean claim, which is on the safe side.
    """
    if rows >= _MANY and variance >= _VARIED:
        return math.erfc(abs(right - claimed) / math.sqrt(2 * variance))
    return binomial_two_sided(round(right), rows, min(max(claimed / rows, 0.0), 1.0)) if rows else 1.0


def binomial_two_sided(hits: int, rows: int, share: float) -> float:
    """Twice the smaller tail of Binomial(rows, share), at most 1."""
    if share in (0.0, 1.0):
        return 1.0 if hits == round(rows * share) else 0.0
    low, high = (0, hits) if hits <= rows * share else (hits, rows)
    k: NDArray[np.float64] = np.arange(low, high + 1, dtype=np.float64)
    rest: NDArray[np.float64] = np.asarray(rows - k, np.float64)
    log_pmf: NDArray[np.float64] = (
        log_gamma(np.array([rows + 1.0]))
        - log_gamma(np.asarray(k + 1.0))
        - log_gamma(np.asarray(rest + 1.0))
        + k * math.log(share)
        + rest * math.log1p(-share)
    )
    return min(1.0, 2 * float(np.exp(np.minimum(log_pmf, 0.0)).sum()))


def holm(p: Sequence[float], alpha: float) -> list[bool]:
    """Which of several tests hold together, the chance of a single wrong one being at most alpha (Holm 1979)."""
    holds = [False] * len(p)
    for place, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] > alpha / (len(p) - place):
            break
        holds[i] = True
    return holds
