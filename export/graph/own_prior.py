"""The prior correction that a calibrator file brings along: a deployed file takes the whole formula over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.formula import stored_prior
from calibrant.export.graph.settings import Vector, checked_priors
from calibrant.shares import shares

log = logging.getLogger(__name__)


def own_prior(calibrator: Calibrator, train: Vector | None, absorbed: float) -> Prior:
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


def deployed_prior(
    names: Sequence[str],
    calibrator: Calibrator | None,
    train: Vector | None,
    target: Vector | None,
    adjust: float | None,
    absorbed: float,
    floor: float | None,
) -> Prior:
    """The correction of the deployed file: what is asked for, else what the calibrator holds."""
    own = None if calibrator is None else own_prior(calibrator, train, absorbed)
    if own is None or adjust is not None or own.shift() is None:
        say_what_wins(own, adjust)
        return checked_priors(names, train, target, adjust, absorbed, floor)
    return own if target is None else replace(own, target=tuple(shares(target, classes=len(names)).tolist()))


def say_what_wins(own: Prior | None, adjust: float | None) -> None:
    if own is None or adjust is None or own.shift() is None or own.total == adjust:
        return
    log.warning(
        "--adjust %g takes the place of the correction of total strength %g in the calibrator", adjust, own.total
    )
