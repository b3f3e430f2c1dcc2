"""The prior correction that a calibrator file brings along: a deployed file takes the whole formula over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.formula import stored_prior

log = logging.getLogger(__name__)


def own_prior(
    calibrator: Calibrator, train: Sequence[float] | NDArray[np.floating[Any]] | None, absorbed: float
) -> Prior:
    """The correction in the calibrator, as it was meant; one of strength 0 where it holds none."""
    return stored_prior(calibrator, None if train is None else tuple(np.asarray(train, np.float64).tolist()), absorbed)


def same_shift(a: Prior, b: Prior) -> bool:
    """Do both subtract the same, but for a constant, which softmax does not see?"""
    one, two = a.shift(), b.shift()
    if one is None or two is None:
        return one is None and two is None
    return bool(np.ptp(one - two) < 1e-6)


def map_alone(calibrator: Calibrator) -> dict[str, Any]:
    """The calibrator's block without its correction, whose place in a deployed file is the card's `prior`."""
    block: dict[str, Any] = calibrator.to_dict()
    return {k: v for k, v in block.items() if k not in ("prior", "class_temperatures")} | {"format_version": 1}


def say_what_wins(own: Prior | None, adjust: float | None) -> None:
    if own is None or adjust is None or own.shift() is None or own.total == adjust:
        return
    log.warning(
        "--adjust %g takes the place of the correction of total strength %g in the calibrator", adjust, own.total
    )
