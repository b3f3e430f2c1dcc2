"""What an export is asked for, in records of what belongs together; refused before any work where it means nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.errors import ConfigError, did_you_mean
from calibrant.export.config import Input, check_threshold
from calibrant.shares import check_positive, shares

Vector = Sequence[float] | NDArray[np.floating[Any]]
OPSETS = range(18, 26)  # torch's exporter writes 18 for every older one; 25 is the newest that onnxruntime 1.31 reads


@dataclass(frozen=True)
class Trained:
    """What training built into the logits, to be done again or taken off in the graph."""

    class_temperatures: Vector | None = None
    gauge: str = "none"
    absorbed: float = 0.0  # strength of the prior correction that the loss or the sampler has made


@dataclass(frozen=True)
class Interface:
    """What goes into the file and what comes out of it.

    `ood` is {"kind": "energy"}, {"kind": "max-softmax"} or {"kind": "feature-norm", "mu": ..., "sd": ...} and adds the
    output `ood_score`.
    """

    input: Input = "uint8"
    outputs: Sequence[str] = ("probabilities", "logits")
    ood: Mapping[str, Any] | None = None
    opset: int = 18

    @property
    def named(self) -> tuple[str, ...]:
        asked = tuple(self.outputs)
        return asked if self.ood is None or "ood_score" in asked else (*asked, "ood_score")


@dataclass(frozen=True)
class About:
    """What the file says about itself."""

    name: str | None = None  # the file's own where it has none
    description: str = ""
    author: str | None = None
    licence: str | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)


def checked_names(class_names: Sequence[object]) -> tuple[str, ...]:
    """Two or more different names that are not empty and that a file can hold."""
    names = tuple(map(str, class_names))
    if len(names) < 2:
        raise ConfigError(f"{len(names)} class name, and a classifier has two or more", fix="name every class")
    if len(set(names)) != len(names):
        raise ConfigError(f"{len(names)} class names with {len(set(names))} different ones", fix="give each one name")
    for name in names:
        if not name.strip():
            raise ConfigError("a class name is empty", fix="give each class a name")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"the class name {name!a} is not valid Unicode", fix="rename its folder") from None
    return names


def check_settings(input: str, opset: int, abstain_below: float | None) -> None:
    if input not in get_args(Input):
        raise ConfigError(f'unknown input "{input}"', fix=did_you_mean(str(input), get_args(Input)))
    if opset not in OPSETS:
        raise ConfigError(f"opset {opset} cannot be written", fix=f"give {OPSETS[0]} to {OPSETS[-1]}")
    if abstain_below is not None:
        check_threshold(abstain_below)


def checked_priors(
    names: Sequence[str],
    train_prior: Vector | None,
    target_prior: Vector | None,
    adjust: float | None,
    absorbed: float,
    floor: float | None,
) -> Prior:
    """The priors as shares and the strength that is left for the graph."""
    if target_prior is not None and adjust is None:
        raise ConfigError("a target prior without a strength", fix="say how strongly: --adjust 1 is Bayes' rule")
    if adjust is not None and not np.isfinite(adjust):
        raise ConfigError(f"adjust is {adjust}")
    if not np.isfinite(absorbed):
        raise ConfigError(f"the strength absorbed in training is {absorbed}")
    if floor is not None and not 0 < floor < 1:
        raise ConfigError(f"a prior floor is a share between 0 and 1, got {floor}", fix="1e-4 is a usual one")
    if adjust is not None and train_prior is None:
        raise ConfigError("adjusting needs the training prior", fix="give --train-prior or export a run that has one")
    applied = 0.0 if adjust is None else float(adjust) - absorbed
    classes = len(names)
    train = None if train_prior is None else shares(train_prior, name="training prior", classes=classes)
    if train is not None and floor is not None:
        train = shares(np.maximum(train, floor))
    if train is not None:
        check_positive(train, names)
    target = None if target_prior is None else shares(target_prior, name="target prior", classes=classes)
    return Prior(_tuple(train), _tuple(target), float(absorbed), applied)


def _tuple(p: NDArray[np.float64] | None) -> tuple[float, ...] | None:
    return None if p is None else tuple(map(float, p))
