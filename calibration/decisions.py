"""What is decided with probabilities: prediction sets and an abstain threshold, fitted along with a calibrator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.conformal.abstain import abstain_for_coverage, abstain_for_risk
from calibrant.calibration.conformal.holding import DECIDED
from calibrant.calibration.conformal.scores import check_kind
from calibrant.calibration.conformal.sets import fit_conformal


@dataclass(frozen=True)
class Decisions:
    """Prediction sets and an abstain threshold to fit along. `alphas`: one set for each."""

    alphas: tuple[float, ...] = ()
    kind: str = "lac"
    class_conditional: bool = False
    risk: float | None = None
    coverage: float | None = None


def with_decisions(
    calibrator: Calibrator,
    probs: NDArray[np.float64],
    y: NDArray[np.int64],
    wanted: Decisions,
    *,
    target_prior: ArrayLike | None = None,
    shift: NDArray[np.float64] | None = None,
) -> Calibrator:
    """The calibrator with the sets and the threshold for probabilities of rows that it was not fitted on.

    `target_prior`: class shares where they are to hold, if not those of the rows. `shift`: the prior term that the
    probabilities hold; in a file that subtracts another one sets and threshold do not hold.
    """
    kind = check_kind(wanted.kind)
    sets = {
        f"{alpha:g}": fit_conformal(
            probs, y, alpha=alpha, kind=kind, class_conditional=wanted.class_conditional, target_prior=target_prior
        ).to_dict()
        for alpha in wanted.alphas
    }
    abstain = None
    if wanted.risk is not None:
        found = abstain_for_risk(probs, y, risk=wanted.risk, target_prior=target_prior)
        abstain = {"wanted_risk": wanted.risk, **found.to_dict()}
    elif wanted.coverage is not None:
        found = abstain_for_coverage(probs, y, coverage=wanted.coverage, target_prior=target_prior)
        abstain = {"wanted_coverage": wanted.coverage, **found.to_dict()}
    held = np.zeros(calibrator.classes) if shift is None else shift
    fitted_on = {**calibrator.fitted_on, DECIDED: held.tolist()}
    return replace(calibrator, conformal=sets or None, abstain=abstain, fitted_on=fitted_on)


def wanted_of(calibrator: Calibrator) -> Decisions | None:
    """What the calibrator's sets and threshold were asked for; None where it has neither."""
    sets, abstain = calibrator.conformal or {}, calibrator.abstain or {}
    if not sets and not abstain:
        return None
    first: Mapping[str, Any] = next(iter(sets.values()), {})
    by_class = first.get("class_thresholds") is not None and first.get("effective_rows") is None
    return Decisions(
        tuple(float(alpha) for alpha in sets),
        str(first.get("kind", "lac")),
        by_class,
        abstain.get("wanted_risk"),
        abstain.get("wanted_coverage"),
    )
