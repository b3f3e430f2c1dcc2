"""What is decided with probabilities: prediction sets and an abstain threshold, fitted along with a calibrator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.conformal.sets import KINDS, Kind, abstain_for_coverage, abstain_for_risk, fit_conformal
from calibrant.errors import ConfigError, did_you_mean


@dataclass(frozen=True)
class Decisions:
    """Prediction sets and an abstain threshold to fit along. `alphas`: one set for each."""

    alphas: tuple[float, ...] = ()
    kind: str = "lac"
    class_conditional: bool = False
    risk: float | None = None
    coverage: float | None = None


def with_decisions(
    calibrator: Calibrator, probs: NDArray[np.float64], y: NDArray[np.int64], wanted: Decisions
) -> Calibrator:
    """The calibrator with the sets and the threshold for probabilities of rows that it was not fitted on."""
    if wanted.kind not in KINDS:
        raise ConfigError(f'no prediction set of kind "{wanted.kind}"', fix=did_you_mean(wanted.kind, KINDS))
    kind: Kind = wanted.kind  # type: ignore[assignment]
    sets = {
        f"{alpha:g}": fit_conformal(
            probs, y, alpha=alpha, kind=kind, class_conditional=wanted.class_conditional
        ).to_dict()
        for alpha in wanted.alphas
    }  # fmt: skip
    abstain = None
    if wanted.risk is not None:
        abstain = {"wanted_risk": wanted.risk, **abstain_for_risk(probs, y, risk=wanted.risk).to_dict()}
    elif wanted.coverage is not None:
        abstain = {
            "wanted_coverage": wanted.coverage, **abstain_for_coverage(probs, y, coverage=wanted.coverage).to_dict()
        }  # fmt: skip
    return replace(calibrator, conformal=sets or None, abstain=abstain)
