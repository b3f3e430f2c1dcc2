"""Cubic splines of log-odds, one class against the rest: q_k = sigmoid(s_k(u)), u = logit softmax(z / T)_k.

s_k is a natural cubic spline (straight outside its knots) with knots at -6, -3, -1, 1 and 3. One common curve is fitted
to all classes first, s = u + d with a penalty on d, then each class's own deviation from it with a stronger one: a
class of few rows follows the others. Rows are counted in cells of u a tenth wide, so a thousand classes are quick. The
curve is stored at 113 values of u as straight lines between probabilities, made increasing by its running maximum.
(Natural cubic splines of log-odds under a penalty: Lucena 2018, "Spline-based probability calibration"; one class
against the rest as there. Differs: the common curve, fixed knots, u after a temperature, the temperature beside it as
in `anchor.py`.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.estimation.logistic import fit_logistic
from calibrant.calibration.calibrators.form import Form
from calibrant.calibration.calibrators.one_vs_rest.anchor import Fitted, anchored
from calibrant.calibration.calibrators.one_vs_rest.binning import (
    check_tempered_knots,
    own_tempered_knots,
    tempered_knot_steps,
)
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_p_and_rest

Vector = NDArray[np.float64]
_KNOTS = np.array([-6.0, -3.0, -1.0, 1.0, 3.0])
_FARTHEST, _CELL, _STORED = 14.0, 0.1, 113
_COMMON, _OWN = 0.5, 4.0  # precision of the common curve's coefficients, and of each class's deviations from it


def fit_spline(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, mixture: bool = True, seed: int = 0
) -> Fitted:
    """`mixture=false` leaves out the temperature that stands beside the map (`anchor.py`)."""
    if mixture:
        return anchored(_plain, own_tempered_knots, logits, labels, weights, seed=seed)
    return _plain(logits, labels, weights), {}


def _plain(logits: Floats, labels: Labels, weights: Weights | None) -> dict[str, Any]:
    temperature = steadied(logits, labels, weights)
    log_p, log_rest = log_p_and_rest(logits.astype(np.float64) / temperature)
    u = np.clip(log_p - log_rest, -_FARTHEST, _FARTHEST)
    w = np.ones(len(labels)) if weights is None else weights * (weights.sum() / np.dot(weights, weights))
    classes = u.shape[1]
    cells = round(2 * _FARTHEST / _CELL) + 1
    index = np.rint((u + _FARTHEST) / _CELL).astype(np.int64)
    features = basis(np.linspace(-_FARTHEST, _FARTHEST, cells))
    sizes = np.stack([np.bincount(index[:, k], w, cells) for k in range(classes)])
    hits = np.stack([np.bincount(index[labels == k, k], w[labels == k], cells) for k in range(classes)])
    identity = np.zeros(features.shape[1])
    identity[1] = 1.0
    common = fit_logistic(features, hits.sum(axis=0), sizes.sum(axis=0), identity, np.full(len(identity), _COMMON / 2))
    stored = np.linspace(-_FARTHEST, _FARTHEST, _STORED)
    x, shape = 1.0 / (1.0 + np.exp(-stored)), basis(stored)
    curves = []
    for k in range(classes):
        own = fit_logistic(features, hits[k], sizes[k], common, np.full(len(identity), _OWN / 2))
        curves.append(np.maximum.accumulate(1.0 / (1.0 + np.exp(-(shape @ own)))).tolist())
    return {"temperature": temperature, "x": [x.tolist()] * classes, "y": curves, "kind": "linear"}


def basis(u: Vector) -> Vector:
    """1, u and the natural cubic splines of the knots, each of about the size of u."""
    last, before = _KNOTS[-1], _KNOTS[-2]

    def cubic(knot: float) -> Vector:
        out: Vector = np.maximum(u - knot, 0.0) ** 3
        return out

    columns = [np.ones_like(u), u]
    for knot in _KNOTS[:-2]:
        bent = cubic(knot) - cubic(before) * (last - knot) / (last - before)
        bent += cubic(last) * (before - knot) / (last - before)
        columns.append(bent / (last - _KNOTS[0]) ** 2)
    return np.stack(columns, axis=1)


SPLINE = Form("spline", fit_spline, check_tempered_knots, tempered_knot_steps)
