"""How likely labels are under a map near a temperature, against the temperature alone: Laplace's approximation.

The penalty of `near.py` is minus the logarithm of a normal prior on the entries t of (D, M, c). With H the Hessian
of the sum of losses and P the prior's precisions, both at the penalised optimum,

    log E = sum losses(temperature) - sum losses(t) - t'P t / 2 + log|P| / 2 - log|H + P| / 2            (MacKay 1992).

It sees all rows at once, where cross-validation sees how a few of them happened to fall: on two hundred rows it varies
a third as much.
"""

from __future__ import annotations

import numpy as np

from calibrant.calibration.calibrators.estimation.near import Near, flat, identity, proportions
from calibrant.calibration.calibrators.estimation.newton import Problem, Vector
from calibrant.calibration.calibrators.form import Matrix
from calibrant.calibration.inputs import Labels, Weights

_MOST_NUMBERS = 1000  # of the map: the Hessian is their square


def affordable(classes: int, *, full: bool) -> bool:
    return (classes * (classes + 1) if full else 2 * classes) <= _MOST_NUMBERS


def log_evidence(
    found: Near,
    x: Matrix,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    *,
    full: bool,
    bias: bool = True,
) -> float:
    """Positive where the rows speak for the map, which was fitted on x under its strength."""
    c = x.shape[1]
    problem = (
        Problem.full_map(x, labels, weights, offset)
        if full
        else Problem.diagonal_map(x, labels, weights, offset, bias=bias)
    )
    rows = float(1.0 / np.dot(problem.weights, problem.weights))
    centre, t = flat(identity(c), full, bias), flat(found, full, bias)
    value, _, second = problem.value_and_gradient(t, hessian=True)
    assert second is not None  # noqa: S101
    precision = 2 * found.strength * proportions(c, full, bias)
    second *= rows
    second[np.diag_indices_from(second)] += precision
    gain = rows * (problem.value_and_gradient(centre)[0] - value) - 0.5 * float(precision @ (t - centre) ** 2)
    return gain + 0.5 * (float(np.log(precision).sum()) - float(np.linalg.slogdet(second)[1]))
