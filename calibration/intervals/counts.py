"""Hits among so many rows, drawn again and again under accuracies that change: the same chance each time.

From a variance of 3 on, the count at a standard normal z is that of Cornish and Fisher's expansion, rounded:

    k = n a + z sqrt(n a (1 - a) - 1/12) + (1 - 2 a) (z^2 - 1) / 6,

the 1/12 being what rounding adds. Its distribution function is within .003 of the binomial one and its standard
deviation within .5 % (tests/calibration/intervals/test_counts.py), at a tenth of the time. Below, binomial draws.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_ENOUGH = 3.0  # variance of a count
_ROUNDING = 1 / 12


def _balanced(normal: Vector) -> Vector:
    """Draws (draws, cells) of mean 0 and covariance 1 exactly, so that the sd of any sum over the cells is right: 300
    independent ones are off by 4 %, and the same way for every interval that the seed serves. Of more cells than
    the draws can part, each by itself.
    """
    normal = normal - normal.mean(axis=0)
    draws, cells = normal.shape
    if 4 * cells > draws:
        return np.asarray(normal / np.maximum(normal.std(axis=0), 1e-12))
    return np.asarray(np.linalg.solve(np.linalg.cholesky(normal.T @ normal / draws), normal.T).T)


class HitDraws:
    """(draws, cells) counts for `rows` (cells,) whole numbers; `shares(accuracy)` is hits / rows."""

    def __init__(self, rows: NDArray[np.int64], draws: int, seed: int) -> None:
        self._rows, self._n, self._seed = rows, rows.astype(np.float64), seed
        self._normal = _balanced(np.random.default_rng(seed).standard_normal((draws, len(rows))))
        self._bend = (self._normal**2 - 1.0) / 6.0

    def shares(self, accuracy: Vector) -> Vector:
        """Of accuracies (draws, cells) in [0, 1]."""
        variance = self._n * accuracy * (1.0 - accuracy)
        hits = np.sqrt(np.maximum(variance - _ROUNDING, 0.0)) * self._normal
        hits += (1.0 - 2.0 * accuracy) * self._bend
        hits += self._n * accuracy
        np.clip(np.rint(hits, out=hits), 0.0, self._n, out=hits)
        few = np.nonzero(variance < _ENOUGH)
        if len(few[0]):
            rng = np.random.default_rng(self._seed + 1)
            hits[few] = rng.binomial(self._rows[few[1]], accuracy[few])
        shares: Vector = hits / self._n
        return shares
