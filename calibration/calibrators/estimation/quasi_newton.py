"""Limited-memory quasi-Newton steps (Nocedal 1980) on a penalised affine map, in a metric that fits the problem.

The first step of each round is scaled by the diagonal of the Hessian at the start, h_kj = mean_i w_i p_ik (1 - p_ik)
x_ij^2 + 2 s_kj: logits lie at very different heights, and without it the number of passes grows with their spread.
"""

from __future__ import annotations

import numpy as np

from calibrant.calibration.calibrators.estimation.newton import Minimum, Problem, Vector

_MEMORY = 10


def minimise_scaled(
    problem: Problem,
    start: Vector,
    penalty: Vector,
    *,
    centre: Vector,
    tolerance: float = 1e-6,
    most_steps: int = 500,
    least_gain: float = 1e-10,
) -> Minimum:
    """As `newton.minimise`, for any number of parameters: a step costs one or two passes and no matrix.

    It ends as well where a step gains less than `least_gain` of the objective.
    """

    def both(t: Vector) -> tuple[float, Vector]:
        value, gradient, _ = problem.value_and_gradient(t)
        away = t - centre
        return value + float(penalty @ away**2), gradient + 2 * penalty * away

    metric = problem.curvature(centre) + 2 * penalty + 1e-12
    t = start.astype(np.float64, copy=True)
    value, gradient = both(t)
    pairs: list[tuple[Vector, Vector, float]] = []
    steps = 0
    while True:
        size = float(np.abs(gradient).max())
        if size <= tolerance or steps >= most_steps:
            return Minimum(t, value, size, steps, size <= tolerance)
        step = _two_loops(gradient, pairs, metric)
        slope = float(gradient @ step)
        if slope <= 0:  # rounding has spoilt the memory: begin again
            pairs, step = [], gradient / metric
            slope = float(gradient @ step)
        length = 1.0
        while True:
            fresh = t - length * step
            fresh_value, fresh_gradient = both(fresh)
            if fresh_value <= value - 1e-4 * length * slope or length < 1e-6:
                break
            length *= 0.5
        gain = value - fresh_value
        if gain <= 0:
            return Minimum(t, value, size, steps, size <= 10 * tolerance)
        moved, turned = fresh - t, fresh_gradient - gradient
        along = float(moved @ turned)
        if along > 1e-10 * float(np.sqrt((moved @ moved) * (turned @ turned))):
            pairs = [*pairs[-_MEMORY + 1 :], (moved, turned, 1.0 / along)]
        t, value, gradient = fresh, fresh_value, fresh_gradient
        steps += 1
        if gain < least_gain * max(value, 1e-3) and length == 1.0:
            size = float(np.abs(gradient).max())
            return Minimum(t, value, size, steps, True)


def _two_loops(gradient: Vector, pairs: list[tuple[Vector, Vector, float]], metric: Vector) -> Vector:
    out, shares = gradient.copy(), []
    for moved, turned, inverse in reversed(pairs):
        share = inverse * float(moved @ out)
        shares.append(share)
        out -= share * turned
    out /= metric
    if pairs:
        moved, turned, inverse = pairs[-1]
        out /= inverse * float(turned @ (turned / metric))
    for (moved, turned, inverse), share in zip(pairs, reversed(shares), strict=True):
        out += moved * (share - inverse * float(turned @ out))
    return out
