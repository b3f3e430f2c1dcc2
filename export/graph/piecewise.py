"""Functions of one probability as tables that a float32 graph reads as float64 numpy does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.steps import PiecewiseConstant, PiecewiseLinear

Array = NDArray[np.float64]
BEYOND = 2.0  # a knot that no probability reaches


@dataclass(frozen=True)
class PiecewiseMap:
    """log q_k, q_k = g_k(softmax(u)_k), with g_k constant or linear between sorted knots of class k.

    For p in segment i = number of knots <= p (right-continuous):  g = start + slope * (p - origin).
    """

    knots: Array  # (C, K), padded with 2.0
    start: Array  # (C, K + 1)
    slope: Array | None = None  # (C, K + 1); None: constant
    origin: Array | None = None  # (C, K + 1)


def in_float32(step: PiecewiseLinear | PiecewiseConstant) -> PiecewiseMap:
    return _linear(step) if isinstance(step, PiecewiseLinear) else _constant(step)


def _linear(step: PiecewiseLinear) -> PiecewiseMap:
    classes, count = len(step.x), max(len(x) for x in step.x)
    knots, start = np.full((classes, count), BEYOND), np.zeros((classes, count + 1))
    slope, origin = np.zeros((classes, count + 1)), np.zeros((classes, count + 1))
    for k, y in enumerate(step.y):
        x = rounded_up(step.x[k])
        run = np.diff(x)
        knots[k, : len(x)] = x
        start[k, 0], start[k, 1 : len(y) + 1], start[k, len(y) + 1 :] = y[0], y, y[-1]
        # knots that fall together in float32 leave a segment that no probability reaches
        slope[k, 1 : len(x)] = np.divide(np.diff(y), run, out=np.zeros_like(run), where=run > 0)
        origin[k, 1 : len(x) + 1] = x
    return PiecewiseMap(knots, start, slope, origin)


def _constant(step: PiecewiseConstant) -> PiecewiseMap:
    classes, count = len(step.edges), max(1, *(len(x) for x in step.edges))
    knots, start = np.full((classes, count), BEYOND), np.zeros((classes, count + 1))
    for k, y in enumerate(step.values):
        knots[k, : len(step.edges[k])] = rounded_up(step.edges[k])
        start[k, : len(y)], start[k, len(y) :] = y, y[-1]
    return PiecewiseMap(knots, start)


def rounded_up(x: Array) -> Array:
    """The smallest float32 that is not less: then p >= x is the same for every float32 p as in float64."""
    near = x.astype(np.float32)
    return np.where(near < x, np.nextafter(near, np.float32(np.inf)), near).astype(np.float64)
