"""Prediction sets of a deployed file: which coverages it holds, and the sets at one of them.

Scores and membership are computed by `calibrant.calibration.conformal`, which fitted the thresholds. The guarantee is
about the file's own probabilities and class prior: sets are made from those whatever the temperature of the request,
and none are made under another prior. Differs: the randomised forms are answered without chance (u = 0), and the label
of the answer is always a member; both can only add coverage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.conformal.holding import set_blocks, sets_moved
from calibrant.calibration.conformal.sets import ConformalSet
from calibrant.errors import ConfigError, FormatError

_FLOAT32 = 1e-7  # what probabilities in float32 may lie beside those that the threshold was fitted on


def coverages(card: ModelCard) -> tuple[float, ...]:
    """What coverage may be asked for."""
    return tuple(sorted(round(1.0 - float(alpha), 10) for alpha in set_blocks(card)))


def thresholds(card: ModelCard, coverage: float) -> Mapping[str, Any]:
    """The block for this coverage, or what may be asked for instead."""
    known = set_blocks(card)
    if sets_moved(card):
        raise ConfigError(
            "the file's prediction sets were fitted under another class prior than it corrects to, and would not "
            "cover here",
            where="coverage",
            fix="fit them again: calibrant adjust FILE --labelled VAL.parquet",
        )
    if not known:
        raise ConfigError(
            "the file holds no conformal thresholds, so there are no prediction sets",
            where="coverage",
            fix="calibrate with --conformal 0.1 and export again, or leave coverage out",
        )
    for alpha, block in known.items():
        if abs((1.0 - float(alpha)) - coverage) < 1e-9:
            return {"alpha": float(alpha), "rows": 0, **block}
    names = ", ".join(f"{c:g}" for c in coverages(card))
    raise ConfigError(f"the file has no threshold for {coverage:g}", where="coverage", fix=f"it holds: {names}")


def prediction_sets(card: ModelCard, probabilities: NDArray[np.floating[Any]], coverage: float) -> NDArray[np.bool_]:
    """(N, C) membership, from the file's own probabilities."""
    try:
        found = ConformalSet.from_dict(thresholds(card, coverage))
        return found.members(np.asarray(probabilities, np.float64), slack=_FLOAT32)
    except (TypeError, ValueError) as error:
        raise FormatError(f"damaged conformal block ({error!r})", fix="export again") from None


def check_population(coverage: float | None, *, other_prior: bool) -> None:
    """A set promises coverage under the file's own class prior; under another nothing is known."""
    if coverage is not None and other_prior:
        raise ConfigError(
            "prediction sets hold under the file's own class prior, not under that of the request",
            where="coverage",
            fix="leave coverage out, or target_prior and adjust_strength",
        )
