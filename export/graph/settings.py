"""What an export is asked for, refused before any work is done where it means nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.errors import ConfigError, did_you_mean
from calibrant.export.config import check_threshold
from calibrant.export.graph.wrapper import Input
from calibrant.shares import check_positive, shares

Vector = Sequence[float] | NDArray[np.floating[Any]]
OPSETS = range(18, 26)  # torch's exporter writes 18 for every older one; 25 is the newest that onnxruntime 1.31 reads


def checked_names(class_names: Sequence[object]) -> tuple[str, ...]:
    """Two or more different names that are not empty and that a file can hold."""
    names = tuple(map(str, class_names))
    if len(set(names)) != len(names) or len(names) < 2:
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
