"""The formula of one deployed file, undone and done again with other knobs, on the logits that the graph returned.

The file answers, with z the network's logits over its class temperatures and r = log(pi_train / pi_target),

    logits = u - (a r - s r_0)        u = A z + c

a is the total strength of the prior correction and s what training absorbed of it, against the uniform prior
(r_0 = log(pi_train / uniform)). So u = logits + (a r - s r_0) is exact for every calibrator, and with it every other
strength, prior and temperature. `temperature` means what it means in a file with runtime knobs: where the calibrator
is a temperature, it takes its place; after any other calibrator it divides u, and is 1 unless given.

z itself, for the energy and for predictions files, comes back only where A is diagonal.
Everything here is float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.calibration.conformal.holding import same
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError
from calibrant.priors import UNIFORM, Written, shares_of
from calibrant.serve.engine.knobs import Knobs
from calibrant.serve.engine.prediction_sets import check_population

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DeployedFormula:
    """Undoes and redoes the probability formula of one deployed file."""

    classes: tuple[str, ...]
    prior: Prior
    term: Array  # (C,) a r - s r_0, what the graph subtracted
    fitted: float  # the calibrator's temperature, 1 where it is another map or none
    scale: Array | None  # z = (u - shift) / scale; None where the calibrator is not diagonal
    shift: Array
    calibrator: str

    @classmethod
    def of(cls, card: ModelCard) -> DeployedFormula:
        classes, term = len(card.classes), card.prior.shift()
        by_class = _diagonal(card.calibrator, classes)
        method = str((card.calibrator or {}).get("method", "none"))
        return cls(
            card.classes,
            card.prior,
            np.zeros(classes) if term is None else term,
            1 / float(by_class[0][0]) if method == "temperature" and by_class is not None else 1.0,
            None if by_class is None else by_class[0],
            np.zeros(classes) if by_class is None else by_class[1],
            method,
        )

    def calibrated(self, logits: NDArray[np.floating[Any]]) -> Array:
        """u: calibrated, before any prior correction by the graph."""
        return np.asarray(logits, np.float64) + self.term

    def raw(self, logits: NDArray[np.floating[Any]]) -> Array | None:
        """z, or None where the calibrator cannot be undone exactly."""
        return None if self.scale is None else (self.calibrated(logits) - self.shift) / self.scale

    def conformal_probabilities(self, outputs: Mapping[str, NDArray[Any]]) -> Array:
        """The probabilities that prediction sets are made from: the file's own, whatever the knobs."""
        return softmax(outputs["logits"])

    def logits(self, logits: NDArray[np.floating[Any]], knobs: Knobs) -> Array:
        """The logits that the file would have returned with these knobs."""
        u = self.calibrated(logits)
        if knobs.temperature is not None:
            u = u * (self.fitted / knobs.temperature)
        if knobs.adjust_strength is None and knobs.target_prior is None:
            return u - self.term
        return u - self._new_term(knobs)

    def check(self, knobs: Knobs) -> None:
        """Refuses what `logits` would refuse, before there are any."""
        if knobs.adjust_strength is not None or knobs.target_prior is not None:
            check_population(knobs.coverage, other_prior=not same(self._new_term(knobs), self.term))

    def _new_term(self, knobs: Knobs) -> Array:
        if self.prior.train is None:
            raise ConfigError(
                "the file does not know its training prior, so it cannot be adjusted to another",
                where="adjust_strength" if knobs.adjust_strength is not None else "target_prior",
                fix="export it with the class counts of the training set",
            )
        target, strength = self.prior.target, self.prior.total
        if knobs.target_prior is not None:
            target = self._target(knobs.target_prior)
            # A prior is named in order to be used: full Bayes unless a strength is given or stored.
            strength = strength or 1.0
        if knobs.adjust_strength is not None:
            strength = knobs.adjust_strength
        term = replace(self.prior, target=target, applied=strength - self.prior.absorbed).shift()
        return np.zeros_like(self.term) if term is None else term

    def _target(self, prior: Written) -> tuple[float, ...] | None:
        if prior == UNIFORM:
            return None
        return tuple(shares_of(prior, self.classes, train=self.prior.train, where="target_prior").tolist())


def _diagonal(calibrator: Mapping[str, Any] | None, classes: int) -> tuple[Array, Array] | None:
    """(scale, shift) with u = scale * z + shift, or None for a map that is not diagonal."""
    if calibrator is None or calibrator.get("method") in (None, "none", "identity"):
        return np.ones(classes), np.zeros(classes)
    from calibrant.calibration.calibrators.table import diagonal  # every method's code, 1 MB, for files with one

    found = diagonal(calibrator["method"], calibrator.get("parameters") or {}, classes)
    return None if found is None else (found.a, found.c)
