"""Where sets and thresholds hold: for the probabilities, and under the class prior, that they were fitted for.

Each was fitted on probabilities with some prior term subtracted (or none), and for rows with the class shares that this
term leads to. A deployed file that subtracts another term gives other probabilities, to be used under another prior:
90 % sets were seen to cover 75 % there, and a wished error rate of 15 % to become 39 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard, Prior

Array = NDArray[np.float64]
Block = Mapping[str, Any]
DECIDED = "decided_shift"  # key of fitted_on
SAME = 1e-3  # two terms that differ by less (beyond a constant, which softmax does not see) are one


def fitted_shift(calibrator: Block) -> Array | None:
    """The term that the map was fitted inside; None where it was fitted without one."""
    fitted = calibrator.get("fitted_on") or {}
    if not fitted.get("strength") or fitted.get("log_prior_ratio") is None:
        return None
    return float(fitted["strength"]) * np.asarray(fitted["log_prior_ratio"], np.float64)


def decided_shift(calibrator: Block) -> Array | None:
    """The term behind the map when sets and threshold were fitted; older files fitted them where the map was."""
    own = (calibrator.get("fitted_on") or {}).get(DECIDED)
    return fitted_shift(calibrator) if own is None else np.asarray(own, np.float64)


def same(one: Array | None, two: Array | None) -> bool:
    if one is None or two is None:
        only = one if two is None else two
        return only is None or bool(np.ptp(only) < SAME)
    return bool(np.ptp(one - two) < SAME)


def decisions_hold(calibrator: Block, prior: Prior) -> bool:
    """Are the probabilities of sets and threshold those of a file with this prior correction?"""
    return same(decided_shift(calibrator), prior.shift())


def set_blocks(card: ModelCard) -> Mapping[str, Any]:
    """The file's prediction sets by alpha: its own, else those of its calibrator where they hold."""
    if card.conformal:
        return card.conformal
    calibrator = card.calibrator or {}
    own = calibrator.get("conformal") or {}
    return own if own and decisions_hold(calibrator, card.prior) else {}


def sets_moved(card: ModelCard) -> bool:
    """Has the file sets that were fitted for another prior than its own?"""
    return bool((card.calibrator or {}).get("conformal")) and not set_blocks(card)
