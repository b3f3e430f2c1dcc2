"""Was a calibrator fitted inside the expression that the file computes? Its map and its threshold hold there only.

A calibrator fitted on data that follow the training prior knows no prior term, and any correction may stand behind it.
One fitted on data that follow the target prior was fitted inside `cal(z) - shift` and belongs to that very shift.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.conformal.holding import decided_shift, decisions_hold, fitted_shift, same

log = logging.getLogger(__name__)
Block = Mapping[str, Any]


def warn_if_moved(calibrator: Block | None, prior: Prior) -> None:
    """A map fitted inside one correction and deployed inside another is not calibrated."""
    inside = None if calibrator is None else fitted_shift(calibrator)
    if calibrator is None or inside is None or same(inside, prior.shift()):
        return
    strength = float(calibrator["fitted_on"]["strength"])
    log.warning(
        "the calibrator was fitted inside a prior correction of strength %g that this file does not make, so its "
        "probabilities are not calibrated; adjust the file to that correction, or fit without --adjust",
        strength,
    )


def threshold(calibrator: Block | None, prior: Prior) -> float | None:
    """The abstain threshold that came with the calibrator, where it keeps its promise."""
    own = (calibrator or {}).get("abstain")
    if calibrator is None or not own:
        return None
    if decisions_hold(calibrator, prior):
        return float(own["threshold"])
    without = same(decided_shift(calibrator), None)
    log.warning(
        "the calibrator's abstain threshold was fitted %s and is left out; set one for these probabilities",
        "without a prior adjustment" if without else "inside another prior adjustment",
    )
    return None


def kept_threshold(current: float | None, before: Block | None, after: Block | None, prior: Prior) -> float | None:
    """After an edit: the new calibrator's threshold; one set by hand stays; one of the old calibrator goes with it."""
    own = ((before or {}).get("abstain") or {}).get("threshold")
    by_hand = current is not None and (own is None or float(own) != current)
    if by_hand:
        return current
    fitted = threshold(after, prior)
    if current is not None and fitted is None and not (after or {}).get("abstain"):
        log.warning("the abstain threshold was fitted with the calibrator that it came with and is taken out")
    return fitted
