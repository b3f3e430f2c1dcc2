"""The algebra behind a deployed head: what of  cal(g(z) / tau) - shift  is affine, and folds into weights.

    W' = A diag(1/tau) W        b' = A diag(1/tau) b + c - shift

z = W f + b: the network's logits; g: VACE's gauge; tau: class temperatures; u -> A u + c: an affine calibrator;
shift = a log(pi_train / pi_target). Everything is composed in float64 and rounded to float32 once.

A tail is written as a list of steps. Neighbouring affine steps merge into one, and the first one merges into the
classifier, so that temperature, vector and matrix scaling, class temperatures and the prior cost no node at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.card_checks import GAUGES
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.calibrators.steps import Affine, LogSoftmax, Step, SubtractMax, run
from calibrant.errors import ModelError, did_you_mean

Array = NDArray[np.float64]
LOST = 5e-6  # of a bias, by which it may differ after folding and undoing
SMALL = 1e-20  # a scale that leaves the range of float32 weights intact is larger, and smaller than its inverse


def onto(fold: Affine, weight: Array, bias: Array) -> tuple[Array, Array]:
    """The classifier W f + b followed by the map."""
    if fold.diagonal:
        return fold.a[:, None] * weight, fold.a * bias + fold.c
    return fold.a @ weight, fold.a @ bias + fold.c


def stored(fold: Affine, weight: Array, bias: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The same in float32, rounded once; a diagonal map without a float64 copy of the whole in between."""
    if not fold.diagonal:
        folded, shifted = onto(fold, weight, bias)
        return folded.astype(np.float32), shifted.astype(np.float32)
    out = np.empty(weight.shape, np.float32)
    np.multiply(fold.a[:, None], weight, out=out, casting="same_kind", dtype=np.float64)
    return out, (fold.a * bias + fold.c).astype(np.float32)


def recoverable(fold: Affine, bias: Array) -> bool:
    """Does the classifier come back out of what is stored in float32?

    Not out of a matrix, nor where a vector's scale is 0 or so small that the digits of the bias drown in c.
    """
    if not fold.diagonal or not np.all((np.abs(fold.a) > SMALL) & (np.abs(fold.a) < 1 / SMALL)):
        return False
    # a weight keeps its digits under a scale; only the bias has c added, in which they may drown
    kept = (fold.a * bias + fold.c).astype(np.float32).astype(np.float64)
    return bool(np.all(np.abs((kept - fold.c) / fold.a - bias) <= LOST * np.maximum(np.abs(bias), 1.0)))


def gauge_steps(gauge: str, classes: int) -> list[Step]:
    if gauge == "none":
        return []
    if gauge == "mean":
        return [Affine(np.eye(classes) - 1.0 / classes, np.zeros(classes))]
    if gauge == "max":
        return [SubtractMax()]
    if gauge == "logsoftmax":
        return [LogSoftmax()]
    raise ModelError(f'unknown gauge "{gauge}"', fix=did_you_mean(gauge, GAUGES))


def apply_gauge(z: Array, gauge: str) -> Array:
    """g(z) in numpy."""
    return run(gauge_steps(gauge, z.shape[1]), z)


def tail_steps(
    classes: int,
    *,
    class_temperatures: Sequence[float] | Array | None = None,
    gauge: str = "none",
    calibrator: Calibrator | None = None,
    shift: Array | None = None,
) -> list[Step]:
    """What happens between the network's logits and the deployed ones, merged as far as it goes."""
    found: list[Step] = gauge_steps(gauge, classes)
    if class_temperatures is not None:
        taus = np.asarray(class_temperatures, np.float64)
        check_temperatures(taus, classes)
        found.append(Affine.scale(1.0 / taus))
    if calibrator is not None:
        if calibrator.classes != classes:
            raise ModelError(f"the calibrator maps {calibrator.classes} classes, the model has {classes}")
        found += calibrator.steps()
    if shift is not None:
        found.append(Affine(np.ones(classes), -np.asarray(shift, np.float64)))
    return merge(found)


def merge(steps: Sequence[Step]) -> list[Step]:
    """Joins neighbouring affine steps and leaves out those that do nothing."""
    merged: list[Step] = []
    for step in steps:
        if isinstance(step, Affine) and step.identity:
            continue
        if isinstance(step, Affine) and merged and isinstance(merged[-1], Affine):
            merged[-1] = step.after(merged[-1])
        else:
            merged.append(step)
    return [s for s in merged if not (isinstance(s, Affine) and s.identity)]


def check_temperatures(taus: Array, classes: int) -> None:
    if taus.shape != (classes,) or not np.all(np.isfinite(taus)) or np.any(taus <= 0):
        raise ModelError(f"class temperatures must be {classes} positive numbers, got {taus.shape} {taus.tolist()[:5]}")
