"""The whole formula of a model's probabilities as one thing that every reader applies:

    p = softmax( cal(z) - shift ),    shift = a log(pi_train / pi_target) - s log(pi_train / uniform)

z: logits of a predictions file, with the class temperatures in; cal: the fitted map, the identity where there is none;
a: total strength of the prior correction; s: what the training loss has absorbed of it. It is written into
calibrator.json by `calibrate` and `head`, and read by `evaluate`, `export`, the report, the dashboard and the server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import Source
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.inputs import check_logits
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError, DataError
from calibrant.priors import read_target

Matrix = NDArray[np.float64]
_SAME = 1e-3  # of class temperatures, which went through float32


@dataclass(frozen=True)
class Formula:
    classes: int
    calibrator: Calibrator | None = None
    prior: Prior = Prior()

    @classmethod
    def of(
        cls,
        calibrator: Calibrator | None,
        source: Source,
        *,
        adjust: float | None = None,
        target_prior: Any = None,
        where: str | None = None,
    ) -> Formula:
        """What a calibrator means for these predictions; `adjust`, a total strength, takes the place of its own."""
        classes = len(source.class_names)
        if calibrator is not None:
            _check_fits(calibrator, source, where)
        if adjust is None:
            return cls(classes, calibrator, stored_prior(calibrator, source.train_prior, source.absorbed, where))
        if not np.isfinite(adjust):
            raise ConfigError(f"the strength is {adjust}", where="--adjust")
        own = None if calibrator is None or calibrator.prior is None else calibrator.prior.train
        train = source.train_prior or own
        if train is None:
            raise ConfigError(
                "the predictions do not say the training prior, which --adjust needs",
                where=where,
                fix="make them with calibrant predict, whose file says it, or import them with --train-prior",
            )
        target = None if target_prior is None else read_target(target_prior, source.class_names, train=train)
        prior = Prior(
            train, None if target is None else tuple(target.tolist()), source.absorbed, adjust - source.absorbed
        )
        prior.log_ratio()  # refuses a training prior that has no logarithm
        return cls(classes, calibrator, prior)

    @classmethod
    def of_card(cls, card: ModelCard) -> Formula:
        """What a deployed file applies to logits with its class temperatures in."""
        block = {"kind": "calibrator", "format_version": 1, "classes": len(card.classes), **(card.calibrator or {})}
        return cls(len(card.classes), Calibrator.from_dict(block) if card.calibrator else None, card.prior)

    def shift(self) -> NDArray[np.float64] | None:
        return self.prior.shift()

    def logits(self, logits: ArrayLike, features: NDArray[np.floating[Any]] | None = None) -> Matrix:
        """cal(z) - shift, (N, C)."""
        if self.calibrator is None:
            u = check_logits(logits).astype(np.float64)
        else:
            u = self.calibrator.logits(logits, features)
        shift = self.shift()
        return u if shift is None else u - shift

    def probabilities(self, logits: ArrayLike, features: NDArray[np.floating[Any]] | None = None) -> Matrix:
        return softmax(self.logits(logits, features))

    @property
    def reads_features(self) -> bool:
        """Whether rows have to be read with their features."""
        return self.calibrator is not None and self.calibrator.reads_features

    @property
    def plain(self) -> bool:
        """Does it leave the logits as they are?"""
        return self.calibrator is None and self.shift() is None

    def key(self) -> str:
        """Equal for formulas that compute the same, so that results can be kept."""
        block: dict[str, Any] = {}
        if self.calibrator is not None:
            c = self.calibrator
            block = {"method": c.method, "classes": c.classes, "parameters": dict(c.parameters)}
        shift = self.shift()
        if shift is not None:
            block["shift"] = shift.tolist()
        return hashlib.sha256(json.dumps(block, sort_keys=True).encode()).hexdigest()

    def describe(self) -> str:
        """The map and the correction in a few words."""
        parts = [] if self.calibrator is None else [self.calibrator.method]
        if self.shift() is not None:
            parts.append(f"adjust {self.prior.total:g} to {'uniform' if self.prior.target is None else 'given shares'}")
        return ", ".join(parts) or "as it is"


def read_formula(path: str | Path, source: Source, *, adjust: float | None = None, target_prior: Any = None) -> Formula:
    """What a calibrator's file, or a deployed .onnx file, means for these predictions."""
    where = str(path)
    refuse_cut(source.model, where, "another map or prior")
    if Path(path).suffix.lower() != ".onnx":
        return Formula.of(Calibrator.load(path), source, adjust=adjust, target_prior=target_prior, where=where)
    card = OnnxFile.open(path).card()
    if card.classes != source.class_names:
        raise DataError(
            "its classes are not those of the predictions", where=where, fix="were they made with another model?"
        )
    held, applied = Formula.of_card(card), source.model.get("applied")
    if isinstance(applied, str):
        raise ConfigError(f"the predictions hold {applied} already", where=where, fix="leave the file out")
    if applied:  # a map that cannot be undone: they lie behind it
        held = replace(held, calibrator=None)
    if held.calibrator is None and adjust is None:
        return held
    own = held.calibrator and replace(held.calibrator, prior=held.prior, class_temperatures=card.class_temperatures)
    return Formula.of(own, source, adjust=adjust, target_prior=target_prior, where=where)


def stored_prior(
    calibrator: Calibrator | None, train: Sequence[float] | None, absorbed: float, where: str | None = None
) -> Prior:
    """The prior correction that a calibrator carries; one of an older file as it was meant.

    Older files of `calibrate --adjust` name the shift they were fitted inside (`strength` and `log_prior_ratio`); older
    ones of `head` the strength alone, on top of what training absorbed, towards uniform.
    """
    shares = None if train is None else tuple(map(float, train))
    if calibrator is None:
        return Prior(shares, None, absorbed, 0.0)
    if calibrator.prior is not None:
        return calibrator.prior
    fitted = calibrator.fitted_on
    strength = float(fitted.get("strength") or 0.0)
    if not strength:
        return Prior(shares, None, absorbed, 0.0)
    if fitted.get("log_prior_ratio") is not None:
        return prior_with_shift(strength * np.asarray(fitted["log_prior_ratio"], np.float64), shares, absorbed)
    if shares is None:
        raise ConfigError(
            f"the calibrator corrects the class prior with strength {strength:g}, and the training prior is not known",
            where=where,
            fix="give predictions that calibrant wrote, which say it",
        )
    return Prior(shares, None, absorbed, strength)


def prior_with_shift(shift: NDArray[np.float64], train: tuple[float, ...] | None, absorbed: float) -> Prior:
    """A correction that subtracts `shift`, up to a constant, which softmax does not see."""
    classes = len(shift)
    if train is None or min(train) <= 0:
        train, absorbed = (1.0 / classes,) * classes, 0.0
    ratio = Prior(train).log_ratio()
    centred, axis = shift - shift.mean(), ratio - ratio.mean()
    if float(axis @ axis) > 0:
        applied = float(centred @ axis / (axis @ axis))
        if np.abs(centred - applied * axis).max() < 1e-9:  # towards uniform, as most are
            return Prior(train, None, absorbed, applied)
    log_target = np.log(train) - shift - absorbed * ratio
    target = softmax(log_target)
    return Prior(train, tuple(target.tolist()), absorbed, 1.0 - absorbed)


def with_prior(calibrator: Calibrator, prior: Prior, source: Source) -> Calibrator:
    """The calibrator as it is written down: with the correction and the class temperatures that belong to it."""
    return replace(calibrator, prior=prior, class_temperatures=source.class_temperatures)


def _check_fits(calibrator: Calibrator, source: Source, where: str | None) -> None:
    if calibrator.classes != len(source.class_names):
        raise DataError(
            f"the calibrator has {calibrator.classes} classes, the predictions {len(source.class_names)}",
            where=where,
            fix="was it fitted on another model?",
        )
    prior, fitted, given = calibrator.prior, calibrator.class_temperatures, source.class_temperatures
    if prior is None:
        return  # an older file does not say
    ones = (1.0,) * calibrator.classes
    if np.abs(np.subtract(fitted or ones, given or ones)).max() > _SAME * max(fitted or ones):
        raise DataError(
            "the calibrator was fitted on logits with other class temperatures than these have",
            where=where,
            fix="fit it on predictions of this model",
        )
