"""What a chunk of logits (or of probabilities) says about each of its rows, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.inputs import Floats, Labels
from calibrant.calibration.softmax import row_dots

F = NDArray[np.float64]


@dataclass(frozen=True)
class RowScores:
    """What one chunk says about each of its rows."""

    confidence: Floats
    predicted: NDArray[np.int64]
    own: F  # probability of the label
    nll: F
    entropy: F
    p_squared: F
    top5: NDArray[np.bool_]


@dataclass(frozen=True)
class Shares:
    """Probabilities as numerators and each row's total, so that most need no division; (C, n) or (n, C)."""

    values: F
    total: F
    classes_first: bool
    # What is searched for large entries, and the logarithm of the total on its scale: the logits as they came, which
    # take half the memory traffic. A margin covers their rounding; the values decide.
    source: Floats
    log_total: F

    def rows(self, chosen: NDArray[np.intp]) -> F:
        """Probabilities (len(chosen), C) of some rows."""
        values = self.values[:, chosen].T if self.classes_first else self.values[chosen]
        return values / self.total[chosen][:, None]


def scores_few(part: Floats, y: Labels) -> tuple[RowScores, Shares]:
    """Classes first: reductions over classes then run along whole rows of memory."""
    z = part.T.astype(np.float64, order="C")
    c, n = z.shape
    z -= z.max(axis=0)
    own = z[y, np.arange(n)]
    predicted = _predicted_classes_first(z, own, y)
    top5 = _top5(part, part[np.arange(n), y], y, predicted)
    e = np.exp(z)
    s = e.sum(axis=0)
    log_s = np.log(s)
    z *= e
    entropy = log_s - z.sum(axis=0) / s
    np.multiply(e, e, out=z)
    squared = z.sum(axis=0) / (s * s)
    return RowScores(1.0 / s, predicted, np.exp(own) / s, log_s - own, entropy, squared, top5), Shares(e, s, True, e, s)


def _predicted_classes_first(z: F, own: F, y: Labels) -> NDArray[np.int64]:
    """First class at the maximum (which is 0): the label where it is one and alone, looked for only elsewhere."""
    if np.count_nonzero(z == 0) != z.shape[1]:  # a tie somewhere
        first: NDArray[np.int64] = z.argmax(axis=0)
        return first
    predicted = y.copy()
    wrong = np.flatnonzero(own < 0)
    predicted[wrong] = z[:, wrong].argmax(axis=0)
    return predicted


def scores_many(part: Floats, y: Labels) -> tuple[RowScores, Shares]:
    here = np.arange(len(y))
    predicted = part.argmax(axis=1)
    top5 = _top5(part, part[here, y], y, predicted)
    z = part.astype(np.float64)
    z -= z[here, predicted][:, None]
    own = z[here, y]
    e = np.exp(z)
    s = e @ np.ones(e.shape[1])  # twice as fast as sum
    log_s = np.log(s)
    entropy = log_s - row_dots(e, z) / s
    squared = row_dots(e, e) / (s * s)
    return RowScores(1.0 / s, predicted, np.exp(own) / s, log_s - own, entropy, squared, top5), Shares(
        e, s, False, part, log_s + part[here, predicted]
    )


def scores_of_probabilities(p: Floats, y: Labels) -> tuple[RowScores, Shares]:
    here = np.arange(len(y))
    predicted = p.argmax(axis=1)
    own = p[here, y].astype(np.float64)
    wide = p.astype(np.float64, copy=False)
    top5 = _top5(wide, own, y, predicted)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(wide)
        entropy = -np.where(wide > 0, wide * log_p, 0.0).sum(axis=1)
        nll = -np.log(own)
    scores = RowScores(np.minimum(p[here, predicted], 1), predicted, own, nll, entropy, row_dots(wide, wide), top5)
    return scores, Shares(np.minimum(wide, 1.0), np.ones(len(y)), False, log_p, np.zeros(len(y)))


def _top5(z: Floats, own: Floats, y: Labels, predicted: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the label is among the five largest, of equals the lower class first; looked at where it is not first."""
    inside = np.ones(len(y), bool)
    wrong = np.flatnonzero(predicted != y)
    if z.shape[1] <= 5 or len(wrong) == 0:
        return inside
    part, mine = z[wrong], own[wrong][:, None]
    inside[wrong] = np.count_nonzero(part >= mine, axis=1) <= 5
    tied = wrong[~inside[wrong]]  # perhaps only because of equals that come later
    part, mine = z[tied], own[tied][:, None]
    before = np.arange(z.shape[1]) < y[tied][:, None]
    inside[tied] = ((part > mine) | ((part == mine) & before)).sum(axis=1) < 5
    return inside
