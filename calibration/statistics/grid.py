"""Cells of confidence, fine enough that every equal-width setting up to the grid's order is a union of cells.

The edges are all fractions i/b with b <= order (the Farey sequence: 3,045 of them for order 100). i/b and (2i)/(2b) are
the same float64, so an equal-width bin's edges are among the cells' edges exactly. Above the last fraction, where most
confidences of an uncalibrated network lie, the cells of order 100 shrink in proportion to 1 - c, sixteen to each
halving. Coarser grids have no such tail: they serve tables by class, where it would cost more than it tells.
Cells are (lower, upper], like bins; a confidence of 0 belongs to the first.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.statistics.bins import equal_width_edges

_BUCKETS = 1 << 14  # neighbours in order 100 are at least 1/9900 apart: never two edges in one bucket
_SHIFT = 48  # of a float64's bits: exponent and 4 bits of fraction remain, sixteen steps to an octave
_SMALLEST = 2.0**-53  # of 1 - c: ranking at the top needs the order among rows that are nearly certain


class Grid:
    """Use `grid(order)`, which makes each one once."""

    def __init__(self, order: int) -> None:
        if not 2 <= order <= 100:
            raise ValueError(f"order is {order}, expected 2 to 100")
        self.order = order
        fractions = {i / b for b in range(2, order + 1) for i in range(1, b)}
        farey = np.array(sorted(fractions | {0.0}))
        self._top = float(farey[-1])  # (order - 1) / order
        self._first_tail = len(farey) - 1
        self._j_high = int(_key(np.array([1.0 - self._top]))[0])
        self._j_low = int(_key(np.array([_SMALLEST]))[0])
        if _unkey(self._j_high) == 1.0 - self._top:  # an edge of its own already
            self._j_high -= 1
        self._has_tail = order == 100
        tail = [1.0 - _unkey(j) for j in range(self._j_high, self._j_low, -1)] if self._has_tail else []
        self.edges: NDArray[np.float64] = np.concatenate([farey, tail, [1.0]])
        self.cells = len(self.edges) - 1
        self.smallest = float(farey[1])  # 1 / order: everything up to here is cell 0
        self._tables = {np.dtype(t): _buckets(farey, t) for t in (np.float64, np.float32)}

    def assign(self, confidence: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """The cell of each confidence; edges are rounded to the confidences' precision."""
        below, edge = self._tables[confidence.dtype]
        c = confidence.astype(np.float64, copy=False)
        bucket = (c * _BUCKETS).astype(np.int64)
        cell: NDArray[np.int64] = below[bucket]
        cell += c > edge[bucket]
        if self._has_tail:
            top = np.flatnonzero(cell >= self._first_tail)
            key = _key(np.maximum(1.0 - c[top], 0.0))
            np.maximum(key, self._j_low, out=key)
            np.minimum(key, self._j_high, out=key)
            np.subtract(self._first_tail + self._j_high, key, out=key)
            cell[top] = key
        np.maximum(cell, 0, out=cell)
        return cell

    def bins(self, count: int) -> NDArray[np.int64]:
        """The equal-width bin, of `count`, of each cell."""
        inner = equal_width_edges(count)[1:-1]
        return np.searchsorted(inner, self.edges[1:], side="left").astype(np.int64)

    def exact(self, count: int) -> bool:
        """Whether `count` equal-width bins are unions of cells."""
        return count <= self.order or bool(np.isin(equal_width_edges(count), self.edges).all())


@cache
def grid(order: int) -> Grid:
    return Grid(order)


def _key(u: NDArray[np.float64]) -> NDArray[np.int64]:
    return u.view(np.int64) >> _SHIFT


def _unkey(key: int) -> float:
    return float(np.array([key << _SHIFT], np.int64).view(np.float64)[0])


def _buckets(farey: NDArray[np.float64], dtype: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each of the even buckets: the cell at its lower end, and the one edge inside (or past it) to compare with."""
    lower = np.arange(_BUCKETS + 1) / _BUCKETS
    # The cell of a value just above the bucket's lower end, were there no edge inside the bucket.
    position = np.searchsorted(farey, lower, side="left")  # first edge >= lower end
    rounded = np.append(farey, 2.0).astype(dtype).astype(np.float64)
    return position.astype(np.int64) - 1, rounded[position]
