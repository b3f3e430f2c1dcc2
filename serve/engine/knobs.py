"""What a caller may turn per request, computed on the logits that the graph returns.

The deployed file answers, with z the network's logits over its class temperatures and r = log(pi_train / pi_target),

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
import orjson
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard, Prior
from calibrant.errors import ConfigError, DataError
from calibrant.serve.engine.prediction_sets import fitted_shift

Array = NDArray[np.float64]

_UNIFORM, _TRAIN = "uniform", "train"
NAMES = ("temperature", "adjust_strength", "target_prior", "abstain_below", "coverage", "top_k", "ood")


@dataclass(frozen=True)
class Knobs:
    """None leaves the file's own value."""

    temperature: float | None = None
    adjust_strength: float | None = None
    target_prior: tuple[float, ...] | str | None = None  # one share a class, "uniform" or "train"
    abstain_below: float | None = None
    coverage: float | None = None
    top_k: int | None = None
    ood: bool = False

    @property
    def changes_probabilities(self) -> bool:
        return not (self.temperature is None and self.adjust_strength is None and self.target_prior is None)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Knobs:
        """From request parameters, where the wire format may have made a number a string; foreign keys are ignored."""
        found = {name: values[name] for name in NAMES if values.get(name) is not None}
        for name in ("temperature", "adjust_strength", "abstain_below", "coverage"):
            if name in found:
                found[name] = _number(name, found[name])
        if "top_k" in found:
            k = _number("top_k", found["top_k"])
            if k != int(k):
                raise ConfigError(f"must be a whole number, got {k}", where="top_k")
            found["top_k"] = int(k)
        if "ood" in found:
            found["ood"] = _boolean("ood", found["ood"])
        if "target_prior" in found:
            found["target_prior"] = _prior(found["target_prior"])
        return cls(**found).checked()

    def checked(self) -> Knobs:
        if self.temperature is not None and not 1e-3 <= self.temperature <= 1e3:
            raise ConfigError(f"must lie between 0.001 and 1000, got {self.temperature}", where="temperature")
        if self.adjust_strength is not None and not -10 <= self.adjust_strength <= 10:
            raise ConfigError(f"must lie between -10 and 10, got {self.adjust_strength}", where="adjust_strength")
        if self.abstain_below is not None and not 0 <= self.abstain_below <= 1:
            raise ConfigError(f"is a probability, got {self.abstain_below}", where="abstain_below")
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise ConfigError(f"must lie between 0 and 1, got {self.coverage}", where="coverage")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"must be at least 1, got {self.top_k}", where="top_k")
        return self


@dataclass(frozen=True)
class Redo:
    """Undoes and redoes the probability formula of one deployed file."""

    prior: Prior
    term: Array  # (C,) a r - s r_0, what the graph subtracted
    fitted: float  # the calibrator's temperature, 1 where it is another map or none
    scale: Array | None  # z = (u - shift) / scale; None where the calibrator is not diagonal
    shift: Array
    calibrator: str
    conformal_shift: Array | None  # of the probabilities that the conformal thresholds were fitted on, None: the file's

    @classmethod
    def of(cls, card: ModelCard) -> Redo:
        classes, term = len(card.classes), card.prior.shift()
        diagonal = _diagonal(card.calibrator, classes)
        method = str((card.calibrator or {}).get("method", "none"))
        return cls(
            card.prior, np.zeros(classes) if term is None else term,
            1 / float(diagonal[0][0]) if method == "temperature" and diagonal is not None else 1.0,
            None if diagonal is None else diagonal[0], np.zeros(classes) if diagonal is None else diagonal[1], method,
            fitted_shift(card),
        )  # fmt: skip

    def calibrated(self, logits: NDArray[np.floating[Any]]) -> Array:
        """u: calibrated, before any prior correction by the graph."""
        return np.asarray(logits, np.float64) + self.term

    def raw(self, logits: NDArray[np.floating[Any]]) -> Array | None:
        """z, or None where the calibrator cannot be undone exactly."""
        return None if self.scale is None else (self.calibrated(logits) - self.shift) / self.scale

    def conformal_probabilities(self, outputs: Mapping[str, NDArray[Any]]) -> Array:
        """The probabilities that prediction sets are made from, whatever the knobs."""
        logits = np.asarray(outputs["logits"], np.float64)
        return softmax(logits if self.conformal_shift is None else self.calibrated(logits) - self.conformal_shift)

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
            self._new_term(knobs)

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

    def _target(self, prior: tuple[float, ...] | str) -> tuple[float, ...] | None:
        if isinstance(prior, str):
            return self.prior.train if prior == _TRAIN else None
        if len(prior) != len(self.term):
            raise DataError(f"has {len(prior)} values for {len(self.term)} classes", where="target_prior")
        return prior


def softmax(logits: NDArray[np.floating[Any]]) -> Array:
    shifted = np.asarray(logits, np.float64) - np.max(logits, axis=-1, keepdims=True)
    exponentials = np.exp(shifted)
    normalised: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalised


def _diagonal(calibrator: Mapping[str, Any] | None, classes: int) -> tuple[Array, Array] | None:
    """(scale, shift) with u = scale * z + shift, or None for a map that is not diagonal."""
    if calibrator is None or calibrator.get("method") in (None, "none", "identity"):
        return np.ones(classes), np.zeros(classes)
    p = calibrator.get("parameters") or {}
    match calibrator["method"]:
        case "temperature":
            return np.full(classes, 1 / float(p["temperature"])), np.zeros(classes)
        case "classwise-temperature":
            return 1 / np.asarray(p["temperatures"], np.float64), np.zeros(classes)
        case "vector":
            return np.asarray(p["weights"], np.float64), np.asarray(p["bias"], np.float64)
        case _:
            return None


def _number(name: str, value: Any) -> float:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(f"must be a number, got {_shown(value)}", where=name)
    try:
        number = float(value)
    except OverflowError:
        raise ConfigError("must be finite, got a number above 1e308", where=name) from None
    except ValueError:
        raise ConfigError(f"must be a number, got {_shown(value)}", where=name) from None
    if not np.isfinite(number):
        raise ConfigError(f"must be finite, got {_shown(value)}", where=name)
    return number


def _boolean(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "1", "yes", "false", "0", "no"):
        return value.lower() in ("true", "1", "yes")
    raise ConfigError(f"must be true or false, got {_shown(value)}", where=name)


def _prior(value: Any) -> tuple[float, ...] | str:
    """A list, or (because protocol parameters are strings and numbers only) its JSON or comma-separated text."""
    if isinstance(value, str):
        text = value.strip()
        if text in (_UNIFORM, _TRAIN):
            return text
        try:
            value = orjson.loads(text) if text.startswith("[") else text.split(",")
        except ValueError:
            raise ConfigError("is neither a list of shares, uniform nor train", where="target_prior") from None
    if not isinstance(value, list | tuple | np.ndarray):
        raise ConfigError(f"must be a list with one share a class, got {_shown(value)}", where="target_prior")
    shares = tuple(_number("target_prior", v) for v in value)
    if not shares or min(shares) < 0 or sum(shares) <= 0:
        raise ConfigError("shares of classes must not be negative, nor all 0", where="target_prior")
    if not np.isfinite(sum(shares)):
        raise ConfigError("is too large to add up", where="target_prior")
    return shares


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
