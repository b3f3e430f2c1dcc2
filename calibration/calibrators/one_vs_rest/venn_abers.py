"""Inductive Venn-Abers predictors, one class against the rest: q_k = p1 / (1 - p0 + p1).

p0 and p1 are what isotonic regression says at the score s when the new row is added to the calibration rows with label
0 and with label 1 (Vovk, Petej and Fedorova 2015). No q is 0 or 1, however the labels lie, and q follows a Bayes rule
that has p0 and p1 as its two guesses (the minimax of log loss, section 4 there).

All n answers for p1 come from one pass over the cumulative sums of the labels, ordered by score: p1 at s_i is the slope
of the steepest chord (minimum over its right end, maximum over its left) that begins before the added point (1, 1) and
ends behind it. p0 is the same with labels and order turned round. Between two scores p1 is that of the next, p0 that
of the one before, so q is constant there.

Differs: s = softmax(z / T)_k, since probabilities before a temperature bunch at 0 and 1; at a calibration score itself
q is that of the gap above it, one point in a continuum; by default a temperature stands beside it (`anchor.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form
from calibrant.calibration.calibrators.one_vs_rest.anchor import Fitted, anchored
from calibrant.calibration.calibrators.one_vs_rest.binning import (
    check_tempered_knots,
    own_tempered_knots,
    tempered_knot_steps,
)
from calibrant.calibration.calibrators.one_vs_rest.cells import MANY, counted
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_p_and_rest, softmax

Vector = NDArray[np.float64]


def fit_venn_abers(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, mixture: bool = True, seed: int = 0
) -> Fitted:
    """`mixture=false` leaves out the temperature that stands beside the map (`anchor.py`)."""
    if mixture:
        return anchored(_plain, own_tempered_knots, logits, labels, weights, seed=seed)
    return _plain(logits, labels, weights), {}


def _plain(logits: Floats, labels: Labels, weights: Weights | None) -> dict[str, Any]:
    temperature = steadied(logits, labels, weights)
    z = logits.astype(np.float64) / temperature
    w = np.ones(len(labels))
    if weights is not None:  # the row that is added weighs as much as one effective row
        w = weights * (weights.sum() / np.dot(weights, weights))
    if z.size >= MANY:
        log_p, log_rest = log_p_and_rest(z)
        cells = [counted(log_p[:, k] - log_rest[:, k], labels == k, w) for k in range(z.shape[1])]
        knots = [_steps(1.0 / (1.0 + np.exp(-u)), size, hits) for u, size, hits in cells]
    else:
        p = softmax(z)
        knots = [_pieces(p[:, k], labels == k, w) for k in range(p.shape[1])]
    found = {"x": [x.tolist() for x, _ in knots], "y": [y.tolist() for _, y in knots], "kind": "constant"}
    return {"temperature": temperature, **found}


def _pieces(scores: Vector, hit: NDArray[np.bool_], w: Vector) -> tuple[Vector, Vector]:
    """(x, y): q is y_j for x_j <= s < x_(j+1), from x_0 = 0 on."""
    x, index = np.unique(scores, return_inverse=True)
    size = np.bincount(index, w, len(x)).astype(np.float64)
    hits = np.bincount(index, w * hit, len(x)).astype(np.float64)
    used = size > 0
    return _steps(x[used], size[used], hits[used])


def _steps(x: Vector, size: Vector, hits: Vector) -> tuple[Vector, Vector]:
    """The same of different scores, each with its weight and that of its hits."""
    p1 = np.append(with_one(size, hits), 1.0)
    p0 = np.append(0.0, 1.0 - with_one(size[::-1], (size - hits)[::-1])[::-1])
    q = p1 / (1.0 - p0 + p1)
    q = np.maximum.accumulate(q)  # rounding only
    starts = np.append(0.0, x)
    keep = np.append(True, np.diff(q) > 0)
    if x[0] <= 0.0:
        starts, keep, q = starts[1:], np.append(True, keep[2:]), q[1:]
    return starts[keep], q[keep]


def with_one(size: Vector, hits: Vector) -> Vector:
    """Isotonic regression at each score after one more row of weight 1 and label 1 was added there.

    The corners of the greatest convex minorant of the sums over all scores, begun at (-1, -1), lie on a stack, first on
    top. Step i takes the score i over to the left of the added row: the sum before it moves by (size, hits).
    """
    x = np.concatenate([[-1.0, 0.0], np.cumsum(size)])
    y = np.concatenate([[-1.0, 0.0], np.cumsum(hits)])
    px, py = x.tolist(), y.tolist()
    sx: list[float] = []
    sy: list[float] = []

    def push(a: float, b: float) -> None:
        # with (a, b) to the left of all on the stack: corners that no longer are any go
        while len(sx) > 1 and (sy[-1] - b) * (sx[-2] - sx[-1]) >= (sy[-2] - sy[-1]) * (sx[-1] - a):
            sx.pop()
            sy.pop()
        sx.append(a)
        sy.append(b)

    for a, b in zip(reversed(px[1:]), reversed(py[1:]), strict=True):
        push(a, b)
    push(px[0], py[0])
    out = np.empty(len(size))
    left_x, left_y = px[0], py[0]
    for i in range(len(size)):
        out[i] = (sy[-2] - sy[-1]) / (sx[-2] - sx[-1])
        left_x, left_y = left_x + px[i + 2] - px[i + 1], left_y + py[i + 2] - py[i + 1]
        rise, run = sy[-2] - sy[-1], sx[-2] - sx[-1]
        if (left_y - sy[-1]) * run >= rise * (left_x - sx[-1]):
            continue
        push(left_x, left_y)
    return np.minimum(out, 1.0)


VENN_ABERS = Form("venn-abers", fit_venn_abers, check_tempered_knots, tempered_knot_steps)
