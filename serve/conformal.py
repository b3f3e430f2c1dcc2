"""Prediction sets from the conformal quantiles stored in a deployed file.

A set holds every class whose score is at most the quantile q(1 - coverage) fitted on held-out data, so that the truth
is inside with at least that probability, over data like those.

    lac   s(x, k) = 1 - p_k                                   (Sadinle, Lei and Wasserman 2019)
    aps   s(x, k) = sum of p_j over p_j >= p_k                (Romano, Sesia and Candes 2020, without randomisation)
    raps  aps + weight * max(0, rank(k) - k_free)             (Angelopoulos, Bates, Malik and Jordan 2021)

Differs: a set is never empty; where the quantile admits no class, the most probable one is given, which can only add
coverage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, FormatError
from calibrant.model_card import ModelCard


def prediction_sets(card: ModelCard, probabilities: NDArray[np.float32], coverage: float) -> NDArray[np.bool_]:
    """(N, C) membership at a coverage that the file has a quantile for."""
    block = card.conformal
    if not block:
        raise ConfigError(
            "the file holds no conformal quantiles, so there are no prediction sets",
            where="coverage", fix="export it with --conformal, or leave coverage out",
        )  # fmt: skip
    quantile = _quantile(block, coverage)
    score = scores(block, np.asarray(probabilities, np.float64))
    members: NDArray[np.bool_] = score <= quantile + 1e-7  # probabilities are float32
    members[np.arange(len(members)), probabilities.argmax(axis=1)] = True
    return members


def scores(block: Mapping[str, Any], p: NDArray[np.float64]) -> NDArray[np.float64]:
    method = str(block.get("method", "lac"))
    if method == "lac":
        return 1.0 - p
    if method not in ("aps", "raps"):
        raise FormatError(f'conformal method "{method}" is not known to this version', fix="update calibrant")
    order = np.argsort(-p, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(1, p.shape[1] + 1)[None, :], axis=1)
    mass = np.take_along_axis(np.cumsum(np.take_along_axis(p, order, axis=1), axis=1), rank - 1, axis=1)
    if method == "raps":
        penalty: float = float(block.get("weight", 0.0))
        mass = mass + penalty * np.maximum(0, rank - int(block.get("k_free", 0)))
    return np.asarray(mass)


def coverages(block: Mapping[str, Any] | None) -> tuple[float, ...]:
    """What coverage may be asked for."""
    table = (block or {}).get("quantiles", {})
    return tuple(sorted(round(1.0 - float(alpha), 10) for alpha in table))


def _quantile(block: Mapping[str, Any], coverage: float) -> float:
    for alpha, quantile in block.get("quantiles", {}).items():
        if abs((1.0 - float(alpha)) - coverage) < 1e-9:
            return float("inf") if quantile is None else float(quantile)
    known = ", ".join(f"{c:g}" for c in coverages(block))
    raise ConfigError(
        f"the file has no quantile for {coverage:g}", where="coverage", fix=f"it holds: {known}" if known else None
    )
