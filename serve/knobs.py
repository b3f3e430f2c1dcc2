"""What a caller may turn per request, computed on the logits that the graph returns.

The deployed file answers, with u the calibrated logits and r = log(pi_train / pi_target),

    logits = u - applied * r                u = A z + c   (z: the network's logits over its class temperatures)

so u = logits + applied * r is exact for every calibrator, and with it every other prior and strength. Another
`temperature` takes the calibrator's place, u = z / T; that needs z back and is exact where A is diagonal (temperature,
class-wise temperature, vector scaling); for the others it is refused.

`adjust_strength` is the total strength a, as in `calibrant export --adjust`: what training already absorbed (against
the uniform prior) counts. With a target prior and a loss that absorbed a share s the logits become

    u + s * log(pi_train / uniform) - a * log(pi_train / pi_target)

which is log p under the target prior for a = 1 whatever s was. Everything here is float64 and rounded once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError, DataError
from calibrant.model_card import ModelCard

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

    classes: int
    log_train: Array | None  # log of the training prior
    term: Array  # applied * r, what the graph subtracted
    scale: Array | None  # z = (u - shift) / scale; None where the calibrator is not diagonal
    shift: Array
    calibrator: str
    absorbed: float
    total: float
    card_target: Array | None  # log of the target prior in the file, None is uniform

    @classmethod
    def of(cls, card: ModelCard) -> Redo:
        classes, prior = len(card.classes), card.prior
        log_train = None if prior.train is None else _log(prior.train)
        log_target = None if prior.target is None else _log(prior.target)
        term = np.zeros(classes)
        if prior.applied and log_train is not None:
            term = prior.applied * (log_train - (-np.log(classes) if log_target is None else log_target))
        diagonal = _diagonal(card.calibrator, classes)
        return cls(
            classes, log_train, term,
            None if diagonal is None else diagonal[0], np.zeros(classes) if diagonal is None else diagonal[1],
            str((card.calibrator or {}).get("method", "none")), prior.absorbed, prior.total, log_target,
        )  # fmt: skip

    def calibrated(self, logits: NDArray[np.floating[Any]]) -> Array:
        """u: calibrated, before any prior correction by the graph."""
        return np.asarray(logits, np.float64) + self.term

    def raw(self, logits: NDArray[np.floating[Any]]) -> Array | None:
        """z, or None where the calibrator cannot be undone exactly."""
        return None if self.scale is None else (self.calibrated(logits) - self.shift) / self.scale

    def logits(self, logits: NDArray[np.floating[Any]], knobs: Knobs) -> Array:
        """The logits that the file would have returned with these knobs."""
        if knobs.temperature is None:
            u = self.calibrated(logits)
        else:
            z = self.raw(logits)
            if z is None:
                raise ConfigError(
                    f"this file's calibrator ({self.calibrator}) mixes or bends the logits and cannot be undone",
                    where="temperature", fix="leave it out, or serve a file exported with temperature scaling",
                )  # fmt: skip
            u = z / knobs.temperature
        if knobs.adjust_strength is None and knobs.target_prior is None:
            return u - self.term
        return u - self._new_term(knobs)

    def _new_term(self, knobs: Knobs) -> Array:
        if self.log_train is None:
            raise ConfigError(
                "the file does not know its training prior, so it cannot be adjusted to another",
                where="adjust_strength" if knobs.adjust_strength is not None else "target_prior",
                fix="export it with the class counts of the training set",
            )
        uniform = np.full(self.classes, -np.log(self.classes))
        target = uniform if self.card_target is None else self.card_target
        strength = self.total
        if knobs.target_prior is not None:
            target = self._target(knobs.target_prior, uniform)
            # A prior is named in order to be used: full Bayes unless a strength is given or stored.
            strength = self.total or 1.0
        if knobs.adjust_strength is not None:
            strength = knobs.adjust_strength
        term: Array = strength * (self.log_train - target) - self.absorbed * (self.log_train - uniform)
        return term

    def _target(self, prior: tuple[float, ...] | str, uniform: Array) -> Array:
        if isinstance(prior, str):
            found = {_UNIFORM: uniform, _TRAIN: self.log_train}.get(prior)
            if found is None:
                raise ConfigError(f'"{prior}" is neither "uniform" nor "train"', where="target_prior")
            return found
        if len(prior) != self.classes:
            raise DataError(f"has {len(prior)} values for {self.classes} classes", where="target_prior")
        return _log(prior)


def softmax(logits: NDArray[np.floating[Any]]) -> Array:
    shifted = np.asarray(logits, np.float64) - np.max(logits, axis=-1, keepdims=True)
    exponentials = np.exp(shifted)
    normalised: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalised


def _log(prior: tuple[float, ...]) -> Array:
    shares = np.asarray(prior, np.float64)
    if not np.all(np.isfinite(shares)) or shares.min() <= 0:
        raise DataError("every class needs a share above 0 (a class that never occurs has no odds)", where="prior")
    logged: Array = np.log(shares / shares.sum())
    return logged


def _diagonal(calibrator: Mapping[str, Any] | None, classes: int) -> tuple[Array, Array] | None:
    """(scale, shift) with u = scale * z + shift, or None for a map that is not diagonal."""
    if calibrator is None or calibrator.get("method") in (None, "none", "identity"):
        return np.ones(classes), np.zeros(classes)
    p = {**calibrator, **(calibrator.get("parameters") or {})}
    match calibrator["method"]:
        case "temperature":
            return np.full(classes, 1 / float(p["temperature"])), np.zeros(classes)
        case "classwise-temperature" if "temperatures" in p:
            return 1 / np.asarray(p["temperatures"], np.float64), np.zeros(classes)
        case "vector" if "weight" in p:
            return np.asarray(p["weight"], np.float64), np.asarray(p.get("bias", np.zeros(classes)), np.float64)
        case _:
            return None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(f"must be a number, got {_shown(value)}", where=name)
    try:
        number = float(value)
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
            value = json.loads(text) if text.startswith("[") else text.split(",")
        except ValueError:
            raise ConfigError("is neither a list of shares, uniform nor train", where="target_prior") from None
    if not isinstance(value, list | tuple | np.ndarray):
        raise ConfigError(f"must be a list with one share a class, got {_shown(value)}", where="target_prior")
    shares = tuple(_number("target_prior", v if not isinstance(v, np.generic) else v.item()) for v in value)
    if not shares or min(shares) <= 0:
        raise ConfigError("every class needs a share above 0", where="target_prior")
    return shares


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
