"""Macro-F1 with its interval, from what each class's F1 plausibly is.

F1 = 2 J / (1 + J), J the share of right rows among those labelled or predicted as the class. A class of few rows is
judged by the others (see `beta_binomial`), and by two curves of which the wider limits count: one on which all classes
are alike, and one on which they differ as the probabilities claim that they do. With a long tail the first takes rare
classes for as good as common ones; with two or three rows a class the second takes the claims for too much. Where the
delta method spreads wider its spread is taken: over the pairs (true, predicted), the influence of each on each class's
F1. With fewer than ten wrong rows it reaches down as far as the accuracy's interval does. The truth is the mean over
the classes that occur in the sample.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.beta_binomial import weighed_accuracies
from calibrant.calibration.intervals.binned import DRAWS
from calibrant.calibration.intervals.means import Z95, share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]
_FEW = 10  # wrong rows


def measure_macro_f1(s: Statistics, bins: int) -> Measured:
    """The same for any number of bins."""
    true, predicted, count = s.confusion
    weight = s.weights[true] * count
    c, total = s.classes, float(weight.sum())
    labelled = np.bincount(true, weight, c)
    claimed = np.bincount(predicted, weight, c)
    hit: Vector = np.bincount(true[true == predicted], weight[true == predicted], c).astype(np.float64)
    size: Vector = (labelled + claimed).astype(np.float64)
    present = size > 0
    f1 = np.divide(2 * hit, size, out=np.zeros(c), where=present)
    value = float(f1[present].mean())
    scale = np.divide(total, size, out=np.zeros(c), where=present)
    influence = -f1[true] * scale[true] - f1[predicted] * scale[predicted] + 2 * scale[true] * (true == predicted)
    influence /= int(present.sum())
    sd = float(np.sqrt((s.weights[true] ** 2 * count) @ influence**2)) / total
    rows = s.effective_rows / total
    sure = s.weights * (s.right.total + s.wrong_by_predicted.total).sum(axis=1)
    expected = sure / np.maximum(s.weights * s.probability.total.sum(axis=1) + claimed - sure, 1e-300)
    low, high = value, value
    for claim in (np.full(int(present.sum()), 0.5), np.clip(expected[present], 0.0, 1.0)):
        centre, spread = _plausible(claim, hit[present] * rows, (size - hit)[present] * rows)
        half = Z95 * max(sd, spread)
        low, high = min(low, centre - half), max(high, centre + half)
    right = float(hit.sum()) / total
    if (1 - right) * s.effective_rows < _FEW:  # where hardly a row is wrong, none says how often one is
        low = min(low, value - (right - share_interval(right, s.effective_rows)[0]))
    return Measured(value, max(low, 0.0), min(high, 1.0))


def _plausible(claim: Vector, hits: Vector, of: Vector) -> tuple[float, float]:
    """Mean and standard deviation of the macro-F1 that could be behind these counts."""
    drawn = weighed_accuracies(claim, hits, of, DRAWS, np.random.default_rng(0))
    plausible = (2 * drawn / (1 + drawn)).mean(axis=1)
    return float(plausible.mean()), float(plausible.std())
