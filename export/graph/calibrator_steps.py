"""Fitted calibrators as steps of the deployed tail: every method of the toolkit, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from calibrant.errors import ModelError, did_you_mean
from calibrant.export.graph.fold import (
    Affine,
    Array,
    BetaMap,
    FittedCalibrator,
    LogSoftmax,
    MixtureMap,
    PiecewiseMap,
    Step,
)

BEYOND = 2.0  # a knot that no probability reaches

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


def _structured(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    """The form on log softmax(u / T); the one on logits is affine and came by before."""
    t = float(calibrator.parameters["temperature"])
    return [Affine(np.full(classes, 1.0 / t), np.zeros(classes)), *_dirichlet(calibrator, classes)]


def _knots(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    """Isotonic, BBQ, ENIR: straight between the knots and constant outside, or constant from each knot on."""
    p = calibrator.parameters
    if p["kind"] == "constant":
        return [_steps([x[1:] for x in p["x"]], p["y"], classes)]
    count = max(len(x) for x in p["x"])
    knots, start = np.full((classes, count), BEYOND), np.zeros((classes, count + 1))
    slope, origin = np.zeros((classes, count + 1)), np.zeros((classes, count + 1))
    for k in range(classes):
        x, y = rounded_up(p["x"][k]), np.asarray(p["y"][k], np.float64)
        run = np.diff(x)
        knots[k, : len(x)] = x
        start[k, 0], start[k, 1 : len(y) + 1], start[k, len(y) + 1 :] = y[0], y, y[-1]
        # knots that fall together in float32 leave a segment that no probability reaches
        slope[k, 1 : len(x)] = np.divide(np.diff(y), run, out=np.zeros_like(run), where=run > 0)
        origin[k, 1 : len(x) + 1] = x
    return [PiecewiseMap(knots, start, slope, origin)]


def _histogram(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    p = calibrator.parameters
    return [_steps([edges[1:-1] for edges in p["edges"]], p["values"], classes)]


def _steps(inner: Sequence[Sequence[float]], values: Sequence[Sequence[float]], classes: int) -> PiecewiseMap:
    """values[k][j] for inner[k][j - 1] <= p < inner[k][j]."""
    count = max(1, *(len(x) for x in inner))
    knots, start = np.full((classes, count), BEYOND), np.zeros((classes, count + 1))
    for k in range(classes):
        y = np.asarray(values[k], np.float64)
        knots[k, : len(inner[k])] = rounded_up(inner[k])
        start[k, : len(y)], start[k, len(y) :] = y, y[-1]
    return PiecewiseMap(knots, start)


def rounded_up(x: Sequence[float] | Array) -> Array:
    """The smallest float32 that is not less: then p >= x is the same for every float32 p as in float64."""
    exact = np.asarray(x, np.float64)
    near = exact.astype(np.float32)
    return np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near).astype(np.float64)


def _beta(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    a, b, c = (np.asarray(calibrator.parameters[key], np.float64) for key in "abc")
    if a.shape != (classes,):
        raise ModelError(f"the calibrator maps {len(a)} classes, the model has {classes}")
    return [BetaMap(a, b, c)]


def _ensemble(calibrator: FittedCalibrator, classes: int) -> list[Step]:
    w = [float(v) for v in calibrator.parameters["weights"]]
    return [MixtureMap((float(calibrator.parameters["temperature"]), 1.0), (w[0], w[1]), w[2] / classes)]


_BUILDERS: dict[str, Builder] = {
    "dirichlet": _dirichlet, "structured": _structured, "isotonic": _knots, "bbq": _knots, "enir": _knots,
    "histogram": _histogram, "beta": _beta, "ensemble-temperature": _ensemble,
}  # fmt: skip
