"""The one formula of every deployed probability, in numpy:

    p = softmax( z / (tau_k T)  -  a log(pi_train / pi_target) )

z: logits; tau_k: class temperatures of the training loss; T: fitted temperature, or a fitted map in its place;
pi_train, pi_target: class priors of the training set and of the place of use; a: strength, 0 = off, 1 = Bayes.
Calibrate first, adjust after: where softmax(z / T) is p_train(y | x), the shifted one is exactly p_target(y | x).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import check_labels, check_logits
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError

if TYPE_CHECKING:
    from calibrant.calibration.calibrators.base import Calibrator

Vector = NDArray[np.float64]


def checked_prior(prior: ArrayLike, *, name: str = "prior", smooth: float = 0.0) -> Vector:
    """Shares or counts as shares that sum to one; `smooth` is added to each count first."""
    values = np.asarray(prior, np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.isfinite(values).all() or (values < 0).any():
        raise ConfigError(f"{name} must be one finite number >= 0 for each class")
    values = values + smooth
    if values.sum() <= 0:
        raise ConfigError(f"{name} is zero for every class")
    share: Vector = values / values.sum()
    return share


def log_prior_ratio(train_prior: ArrayLike, target_prior: ArrayLike | None = None, *, smooth: float = 0.0) -> Vector:
    """log(pi_train / pi_target) for each class; the target is uniform unless given. Shares or counts will do.

    A class of prior 0 would make every probability NaN and is refused; `smooth=1` adds one to each count instead (give
    counts then, not shares).
    """
    train = checked_prior(train_prior, name="train prior", smooth=smooth)
    target = (
        np.full(len(train), 1.0 / len(train)) if target_prior is None
        else checked_prior(target_prior, name="target prior", smooth=smooth)
    )  # fmt: skip
    if len(train) != len(target):
        raise ConfigError(f"the train prior has {len(train)} classes and the target prior {len(target)}")
    for name, prior in (("train", train), ("target", target)):
        empty = np.flatnonzero(prior == 0)
        if len(empty):
            raise ConfigError(
                f"the {name} prior of class {int(empty[0])} is 0 (classes with prior 0: {len(empty)})",
                fix="its log ratio is infinite: leave the class out, or pass counts with smooth=1",
            )  # fmt: skip
    ratio: Vector = np.log(train) - np.log(target)
    return ratio


def adjusted_logits(
    logits: ArrayLike,
    *,
    class_temperatures: ArrayLike | None = None,
    calibrator: Calibrator | None = None,
    temperature: float = 1.0,
    log_prior_ratio: ArrayLike | None = None,
    strength: float = 0.0,
) -> NDArray[np.float64]:
    """z / (tau_k T) - a log(pi_train / pi_target), (N, C) in float64; a `calibrator` takes the place of T."""
    z: NDArray[Any] = check_logits(logits).astype(np.float64)
    classes = z.shape[1]
    if class_temperatures is not None:
        z = z / _positive(class_temperatures, classes, "class temperatures")
    if calibrator is not None:
        if temperature != 1.0:
            raise ConfigError("a calibrator and a temperature were given", fix="pass one of them")
        z = calibrator.logits(z)
    else:
        z = z / _positive([temperature], 1, "temperature")
    if strength != 0.0:
        if log_prior_ratio is None:
            raise ConfigError(
                f"adjustment strength {strength} without a prior", fix="pass log_prior_ratio(train_prior, target_prior)"
            )
        z = z - strength * checked_ratio(log_prior_ratio, classes)
    return z


def adjusted_probabilities(
    logits: ArrayLike,
    *,
    class_temperatures: ArrayLike | None = None,
    calibrator: Calibrator | None = None,
    temperature: float = 1.0,
    log_prior_ratio: ArrayLike | None = None,
    strength: float = 0.0,
) -> NDArray[np.float64]:
    """softmax of `adjusted_logits`."""
    return softmax(
        adjusted_logits(
            logits, class_temperatures=class_temperatures, calibrator=calibrator, temperature=temperature,
            log_prior_ratio=log_prior_ratio, strength=strength,
        )
    )  # fmt: skip


def class_weights(train_prior: ArrayLike, target_prior: ArrayLike | None = None) -> Vector:
    """pi_target(k) / pi_train(k) for each class; a class that training has not may only be absent in the target too."""
    train = checked_prior(train_prior, name="train prior")
    target = (
        np.full(len(train), 1.0 / len(train)) if target_prior is None
        else checked_prior(target_prior, name="target prior")
    )  # fmt: skip
    if len(train) != len(target):
        raise ConfigError(f"the train prior has {len(train)} classes and the target prior {len(target)}")
    lost = np.flatnonzero((train == 0) & (target > 0))
    if len(lost):
        raise ConfigError(
            f"class {int(lost[0])} has no share in the data but {target[lost[0]]:.3g} in the target prior",
            fix="no weight can make up for a class without rows; give it target prior 0",
        )
    weights: Vector = np.divide(target, train, out=np.zeros_like(train), where=train > 0)
    return weights


def sample_weights(labels: ArrayLike, train_prior: ArrayLike, target_prior: ArrayLike | None = None) -> Vector:
    """pi_target(y) / pi_train(y) for each row: measures under the target prior on data that follow the training's."""
    weights = class_weights(train_prior, target_prior)
    y = check_labels(labels, len(np.asarray(labels)), len(weights))
    result: Vector = weights[y]
    return result


def checked_ratio(ratio: ArrayLike, classes: int) -> Vector:
    values = np.asarray(ratio, np.float64)
    if values.shape != (classes,) or not np.isfinite(values).all():
        raise ConfigError(f"log prior ratio has shape {values.shape}, expected {classes} finite numbers")
    return values


def _positive(values: ArrayLike, length: int, name: str) -> Vector:
    array = np.asarray(values, np.float64)
    if array.shape != (length,) or not np.isfinite(array).all() or (array <= 0).any():
        raise ConfigError(f"{name} must be {length} finite positive number{'s' if length > 1 else ''}")
    return array
