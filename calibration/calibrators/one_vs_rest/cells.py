"""Rows of one class against the rest, counted in cells of their log-odds, where so many take long one by one.

A cell is a fiftieth of a nat wide, so a probability moves by half a percent of itself at most; beyond 60 nats all rows
are in the last one. A thousand rows or a million then take the same time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
MANY = 1e5  # rows x classes from which rows are counted
_WIDTH, _FARTHEST = 0.02, 60.0


def counted(u: Vector, hit: NDArray[np.bool_], w: Vector) -> tuple[Vector, Vector, Vector]:
    """(log-odds, weight, weight of the hits) of each cell that holds rows, from the least on."""
    index = np.rint((np.clip(u, -_FARTHEST, _FARTHEST) + _FARTHEST) / _WIDTH).astype(np.int64)
    count = round(2 * _FARTHEST / _WIDTH) + 1
    size = np.bincount(index, w, count).astype(np.float64)
    hits = np.bincount(index[hit], w[hit], count).astype(np.float64)
    used = size > 0
    middle: Vector = np.flatnonzero(used).astype(np.float64) * _WIDTH - _FARTHEST
    return middle, size[used], hits[used]
