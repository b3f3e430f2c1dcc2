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

from calibrant.calibration.inputs import check_logits
from calibrant.calibration.softmax import softmax
from calibrant.errors import ConfigError

if TYPE_CHECKING:
    from calibrant.calibration.calibrators.base import Calibrator

Vector = NDArray[np.float64]


def adjusted_logits(
    logits: ArrayLike,
    *,
    class_temperatures: ArrayLike | None = None,
    calibrator: Calibrator | None = None,
    temperature: float = 1.0,
    log_prior_ratio: ArrayLike | None = None,
    strength: float = 0.0,
    features: NDArray[np.floating[Any]] | None = None,
) -> NDArray[np.float64]:
    """z / (tau_k T) - a log(pi_train / pi_target), (N, C) in float64; a `calibrator` takes the place of T."""
    z: NDArray[Any] = check_logits(logits).astype(np.float64)
    classes = z.shape[1]
    if class_temperatures is not None:
        z = z / _positive(class_temperatures, classes, "class temperatures")
    if calibrator is not None:
        if temperature != 1.0:
            raise ConfigError("a calibrator and a temperature were given", fix="pass one of them")
        z = calibrator.logits(z, features)
    else:
        z = z / _positive([temperature], 1, "temperature")
    if strength != 0.0:
        if log_prior_ratio is None:
            raise ConfigError(
                f"adjustment strength {strength} without a prior",
                fix="pass log_prior_ratio of calibrant.shares",
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
            logits,
            class_temperatures=class_temperatures,
            calibrator=calibrator,
            temperature=temperature,
            log_prior_ratio=log_prior_ratio,
            strength=strength,
        )
    )


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
