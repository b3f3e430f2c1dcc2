"""Intervals of what tells foreign rows from known ones, given the scores of both (higher: more like the known ones)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.ranking import area_interval
from calibrant.calibration.metrics.ood import OodScores

Vector = NDArray[np.float64]
_Z975 = 2.241402727604947  # of the normal law, 97.5 % two-sided


def measure_ood_auroc(known: Vector, foreign: Vector, value: float) -> Measured:
    """DeLong's interval; with fewer than thirty rows on a side a score interval. See `ranking`. By chance: one half."""
    _, place = np.unique(np.concatenate([known, foreign]), return_inverse=True)
    cells = int(place.max()) + 1
    right = np.bincount(place[: len(known)], minlength=cells).astype(np.float64)
    wrong = np.bincount(place[len(known) :], minlength=cells).astype(np.float64)
    return Measured(value, *area_interval(right, wrong, value), null=0.5)


def measure_fpr(known: Vector, foreign: Vector, found: OodScores) -> Measured:
    """The threshold is drawn by chance with the known rows, and the share above it with the foreign ones.

    97.5 % for the threshold by order statistics (the binomial law of how many known rows fall below the true one) and
    97.5 % for the share at either end of it (Wilson): together at least 95 %. By chance: the recall itself.
    """
    from scipy.special import bdtr

    n, ordered = len(known), np.sort(known)
    below = bdtr(np.arange(n + 1), n, 1.0 - found.tpr) if found.tpr < 1 else np.ones(n + 1)
    first = int(np.searchsorted(below, 0.0125, side="right"))
    last = int(np.searchsorted(below, 0.9875, side="left"))
    low_end = ordered[first - 1] if first > 0 else -np.inf
    high_end = ordered[last] if last < n else np.inf
    shares = (float((foreign >= high_end).mean()), float((foreign >= low_end).mean()))
    low = share_interval(shares[0], len(foreign), z=_Z975)[0]
    high = share_interval(shares[1], len(foreign), z=_Z975)[1]
    return Measured(found.fpr, low, high, null=found.tpr)
