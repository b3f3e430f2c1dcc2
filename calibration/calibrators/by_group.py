"""A correction of each group of rows (a site, a camera) behind one common map, shrunken to it: zeta = (1 + d) x + c.

x = log softmax of the common map's logits, fitted on all rows. Of group g, d_g (a number) and c_g (C) minimise

    sum_(i in g) w_i CE(softmax((1 + d) x_i + c), y_i)  +  d^2 / (2 s^2)  +  |c|^2 / (2 r^2).

s and r are the same for all groups, so the groups say together how far apart they lie: pairs of a small grid (`PAIRS`)
weigh as much as prior times evidence (Laplace's, multiplied over the groups), half of the prior on (0, 0), the common
map alone. Corrections are averaged over the pairs, number by number; a group without rows has none.
(Partial pooling: Gelman and Hill 2007, "Data analysis using regression and multilevel/hierarchical models"; evidence:
MacKay 1992. Calibration by given groups: Hebert-Johnson et al. 2018, "Multicalibration".
Differs: disjoint groups, one penalised map each, in the place of an audit that patches whatever set is off.)

The group of a picture is no input of the graph: each group gets a calibrator of its own, and each of these a file.
Beyond a hundred classes c is left out: the rows of one group do not tell so many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import Affine, Step
from calibrant.calibration.inputs import Labels, Weights, finite_logits
from calibrant.calibration.softmax import FLOOR_DEPTH, log_softmax
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
FEWEST = 10  # rows of a group that gets a correction
_MANY = 100  # classes beyond which a group has no biases
_OF_NONE = 0.5
_LEAST_SCALE = 0.05  # no correction turns the order of the classes round
PAIRS = tuple((s, r) for s in (0.0, 0.1, 0.3) for r in (0.0, 0.2, 0.6))


@dataclass(frozen=True)
class Correction:
    scale: float  # 1 + d
    bias: Vector

    def __call__(self, x: Matrix) -> Matrix:
        out: Matrix = self.scale * x + self.bias
        return out


@dataclass(frozen=True)
class Corrections:
    """Of each group with rows enough; `shares`: how much each pair of spreads (of d, of c) is believed."""

    of: Mapping[str, Correction]
    shares: Mapping[tuple[float, float], float]

    def logits(self, common: Matrix, groups: NDArray[Any]) -> Matrix:
        """Calibrated logits of rows from those of the common map."""
        out = common.copy()
        for value, correction in self.of.items():
            rows = groups == value
            out[rows] = correction(log_softmax(common[rows]))
        return out


def fit_corrections(
    common: Matrix, labels: Labels, groups: NDArray[Any], weights: Weights | None = None
) -> Corrections:
    """`common`: logits of the common map (N, C); `groups`: of each row its group, "" where it has none."""
    x, classes = log_softmax(finite_logits(common, FLOOR_DEPTH)), common.shape[1]
    w = np.ones(len(labels)) if weights is None else weights * (weights.sum() / np.dot(weights, weights))
    values, counts = np.unique(groups, return_counts=True)
    kept = [str(v) for v, n in zip(values, counts, strict=True) if n >= FEWEST and v != ""]
    pairs = [p for p in PAIRS if p[1] == 0.0 or classes <= _MANY]
    evidence = np.zeros(len(pairs))
    maps = np.zeros((len(pairs), len(kept), 1 + classes))
    for g, value in enumerate(kept):
        rows = groups == value
        for j, (s, r) in enumerate(pairs):
            maps[j, g], gain = _fit(x[rows], labels[rows], w[rows], s, r)
            evidence[j] += gain
    prior = np.full(len(pairs), (1 - _OF_NONE) / (len(pairs) - 1))
    prior[0] = _OF_NONE
    score = np.log(prior) + evidence
    share = np.exp(score - score.max())
    share /= share.sum()
    averaged = np.tensordot(share, maps, axes=1)
    found = {
        v: Correction(max(1.0 + float(t[0]), _LEAST_SCALE), t[1:] - t[1:].mean())
        for v, t in zip(kept, averaged, strict=True)
    }
    return Corrections(found, dict(zip(pairs, share.tolist(), strict=True)))


def _fit(x: Matrix, y: Labels, w: Vector, s: float, r: float) -> tuple[Vector, float]:
    """(d, c) of one group under spreads s and r, and its log evidence against (0, 0); Newton with step halving."""
    c = x.shape[1]
    t, spread = np.zeros(1 + c), np.concatenate([[s], np.full(c, r)])
    free = np.flatnonzero(spread > 0)
    if not len(free):
        return t, 0.0
    precision = 1.0 / spread[free] ** 2

    def objective(at: Vector) -> float:
        log_p = log_softmax(x * (1.0 + at[0]) + at[1:])
        return -float(w @ log_p[np.arange(len(y)), y]) + 0.5 * float(precision @ at[free] ** 2)

    start = value = objective(t)
    second = np.eye(len(free))
    for _ in range(50):
        gradient, full = _derivatives(x, y, w, t)
        second = full[np.ix_(free, free)] + np.diag(precision)
        step = np.zeros_like(t)
        slope = gradient[free] + precision * t[free]
        step[free] = np.linalg.solve(second, slope)
        length = 1.0
        while (fresh := objective(t - length * step)) > value - 1e-4 * length * float(slope @ step[free]):
            length *= 0.5
            if length < 1e-6:
                break
        if length < 1e-6:
            break
        t, gained, value = t - length * step, value - fresh, fresh
        if gained < 1e-9 * max(value, 1.0):
            break
    gain = start - value + 0.5 * (float(np.log(precision).sum()) - float(np.linalg.slogdet(second)[1]))
    return t, gain


def _derivatives(x: Matrix, y: Labels, w: Vector, t: Vector) -> tuple[Vector, Matrix]:
    """Of the sum of losses by (d, c), c running over the classes."""
    p = np.exp(log_softmax(x * (1.0 + t[0]) + t[1:]))
    residual = p.copy()
    residual[np.arange(len(y)), y] -= 1.0
    residual *= w[:, None]
    gradient = np.append(np.einsum("ij,ij->", residual, x), residual.sum(axis=0))
    mean = np.einsum("ij,ij->i", p, x)[:, None]
    along = p * (x - mean)
    second = np.empty((len(t), len(t)))
    second[0, 0] = w @ np.einsum("ij,ij->i", along, x)
    second[0, 1:] = second[1:, 0] = w @ along
    second[1:, 1:] = np.diag(w @ p) - (p * w[:, None]).T @ p
    return gradient, second


# ---- a group's own calibrator, as a method of the table ----


def parameters_of(method: str, parameters: Parameters, correction: Correction) -> dict[str, Any]:
    """The common map with a group's correction behind it."""
    common = {"method": method, "parameters": dict(parameters)}
    return {"common": common, "scale": correction.scale, "bias": correction.bias.tolist()}


def fit_alone(*args: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    raise ConfigError(
        "by-group is fitted on rows of several groups", fix="calibrant calibrate by-group VAL.parquet --column site"
    )


def _check(p: Parameters, classes: int) -> None:
    from calibrant.calibration.calibrators.table import form

    common = p.get("common")
    if not isinstance(common, dict) or not {"method", "parameters"} <= set(common):
        raise ConfigError('parameter "common" must be a method with its parameters')
    if common["method"] == BY_GROUP.method:
        raise ConfigError("the common map of a group cannot be that of a group")
    found = form(str(common["method"]))
    if found.reads_features:
        raise ConfigError(f"{found.method} reads features, which the common map of groups is not given")
    found.check(common["parameters"], classes)
    positive(p, "scale", ())
    numbers(p, "bias", (classes,))


def _steps(p: Parameters, classes: int) -> tuple[Step, ...]:
    from calibrant.calibration.calibrators.table import form

    first = form(str(p["common"]["method"])).steps(p["common"]["parameters"], classes)
    last = Affine(np.full(classes, float(p["scale"])), np.asarray(p["bias"], np.float64))
    if len(first) == 1 and isinstance(first[0], Affine):
        return (last.after(first[0]),)
    return (*first, last)


BY_GROUP = Form("by-group", fit_alone, _check, _steps)
