"""Scores s(x, k) of conformal sets: how little class k suits row x. Needs numpy alone; the server calls it too.

With p sorted from high to low and r_k the rank from 1:
    LAC   1 - p_k                                              (Sadinle et al. 2019): smallest sets on average
    APS   sum of p above k + u p_k                            (Romano et al. 2020): coverage more even over hard rows
    RAPS  APS + penalty max(0, r_k - rank)                     (Angelopoulos et al. 2021): without APS's long tails
u is uniform in [0, 1] for each row, or 0: a set is then the same each time and never empty, and coverage exceeds
1 - alpha only where the top class alone is right more often than that.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, did_you_mean

Kind = Literal["lac", "aps", "raps"]
KINDS: tuple[Kind, ...] = ("lac", "aps", "raps")
Probs = NDArray[np.float64]


def check_kind(kind: str) -> Kind:
    if kind not in KINDS:
        raise ConfigError(f'no prediction set of kind "{kind}"', fix=did_you_mean(kind, KINDS))
    return kind


def all_scores(p: Probs, kind: Kind, *, penalty: float = 0.0, rank: int = 0, u: Any = 0.0) -> Probs:
    """s(x, k) of every class, (N, C)."""
    if kind == "lac":
        return 1.0 - p
    order = np.argsort(-p, axis=1, kind="stable")
    high_to_low = np.take_along_axis(p, order, axis=1)
    above = np.cumsum(high_to_low, axis=1) - high_to_low
    ordered = above + np.asarray(u).reshape(-1, 1) * high_to_low
    if kind == "raps":
        ordered = ordered + penalty * np.maximum(np.arange(1, p.shape[1] + 1) - rank, 0)
    scores = np.empty_like(ordered)
    np.put_along_axis(scores, order, ordered, axis=1)
    return scores


def sharpened(p: Probs, temperature: float) -> Probs:
    """softmax(log p / temperature)."""
    if temperature == 1.0:
        return p
    if not temperature > 0:
        raise ConfigError(f"temperature is {temperature}, expected more than 0")
    with np.errstate(divide="ignore"):
        z = np.log(p)
    return softmax(np.maximum(z, -700.0) / temperature)
