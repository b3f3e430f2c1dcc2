"""Was a calibrator fitted inside the expression that the file computes? Its map and its threshold hold there only.

A calibrator fitted on data that follow the training prior knows no prior term, and any correction may stand behind it.
One fitted on data that follow the target prior was fitted inside `cal(z) - shift` and belongs to that very shift.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.artifacts.model_card import Prior
from calibrant.export.graph.fold import Array

log = logging.getLogger(__name__)
Block = Mapping[str, Any]
SAME = 1e-3  # two shifts that differ by less (beyond a constant, which softmax does not see) are one


def inside(calibrator: Block) -> Array | None:
    """The shift that the map was fitted inside; None where it was fitted without one."""
    fitted = calibrator.get("fitted_on") or {}
    if not fitted.get("strength") or fitted.get("log_prior_ratio") is None:
        return None
    return float(fitted["strength"]) * np.asarray(fitted["log_prior_ratio"], np.float64)


def same(calibrator: Block, prior: Prior) -> bool:
    """Are the probabilities of the fit those of the file?"""
    fitted, deployed = inside(calibrator), prior.shift()
    if fitted is None or deployed is None:
        return fitted is None and deployed is None
    gap = fitted - deployed
    return bool(np.ptp(gap) < SAME)


def warn_if_moved(calibrator: Block | None, prior: Prior) -> None:
    """A map fitted inside one correction and deployed inside another is not calibrated."""
    if calibrator is None or inside(calibrator) is None or same(calibrator, prior):
        return
    strength = float(calibrator["fitted_on"]["strength"])
    log.warning(
        "the calibrator was fitted inside a prior correction of strength %g that this file does not make, so its "
        "probabilities are not calibrated; adjust the file to that correction, or fit without --adjust", strength,
    )  # fmt: skip


def threshold(calibrator: Block | None, prior: Prior) -> float | None:
    """The abstain threshold that came with the calibrator, where it keeps its promise."""
    own = (calibrator or {}).get("abstain")
    if calibrator is None or not own:
        return None
    if same(calibrator, prior):
        return float(own["threshold"])
    without = inside(calibrator) is None
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
