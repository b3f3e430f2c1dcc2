"""Fitted calibrators as steps of the deployed tail: every method of the toolkit, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.errors import ModelError, did_you_mean
from calibrant.export.fold import Affine, Array, FittedCalibrator, LogSoftmax, Step

Builder = Callable[[FittedCalibrator, int], list[Step]]


def calibrator_steps(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    """The calibrator as a list of steps on the network's (class-tempered) logits."""
    affine = calibrator.as_affine()
    if affine is not None:
        return [_affine(*affine, classes)]
    builder = _BUILDERS.get(calibrator.method)
    if builder is None:
        raise ModelError(
            f'calibrator "{calibrator.method}" cannot be written as a graph',
            fix=did_you_mean(calibrator.method, _BUILDERS),
        )
    return builder(calibrator, classes)


def _affine(a: Array, c: Array, classes: int) -> Affine:
    a, c = np.asarray(a, np.float64), np.asarray(c, np.float64)
    if a.ndim == 0:
        a = np.full(classes, float(a))
    if a.shape not in ((classes,), (classes, classes)) or c.shape not in ((), (classes,)):
        raise ModelError(f"the calibrator maps {a.shape[0]} classes, the model has {classes}")
    return Affine(a, np.broadcast_to(c, (classes,)).astype(np.float64))


def _dirichlet(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    """W log_softmax(u) + c. The log-sum-exp term is the same for all classes only if W's rows have equal sums."""
    weight = np.asarray(calibrator.parameters["matrix"], np.float64)
    bias = np.asarray(calibrator.parameters["bias"], np.float64)
    if weight.shape != (classes, classes):
        raise ModelError(f"the calibrator maps {weight.shape[0]} classes, the model has {classes}")
    return [LogSoftmax(), Affine(weight, bias)]


_BUILDERS: dict[str, Builder] = {"dirichlet": _dirichlet}
