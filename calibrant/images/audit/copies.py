"""Which images show the same picture: pairs of near-duplicates, and the groups that they form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.images.audit.fingerprint import NEAR
from calibrant.progress import bar

_BLOCK = 4 << 20  # comparisons at a time


def near_pairs(
    p_hashes: NDArray[np.uint64], d_hashes: NDArray[np.uint64], *, near: int = NEAR
) -> list[tuple[int, int, int]]:
    """(i, j, bits) of all pairs i < j of which at most `near` of the 128 bits differ.

    Every pair is compared: 0.05 s for 6,000 images, 15 s for 100,000.
    """
    n = len(p_hashes)
    rows = max(1, _BLOCK // max(1, n))
    found: list[tuple[int, int, int]] = []
    shown = bar(what="comparing pictures", total=n, unit="img")
    for start in range(0, n, rows):
        stop = min(start + rows, n)
        bits = np.bitwise_count(p_hashes[start:stop, None] ^ p_hashes[None, start:])
        bits += np.bitwise_count(d_hashes[start:stop, None] ^ d_hashes[None, start:])
        for a, b in np.argwhere(bits <= near):
            if a < b:
                found.append((start + int(a), start + int(b), int(bits[a, b])))
        shown.update(stop - start)
    shown.close()
    return found


def united(count: int, pairs: Iterable[tuple[int, int]]) -> NDArray[np.intp]:
    """(count,) the smallest member of each one's group, where a pair is in one group (union-find)."""
    parent = np.arange(count)

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = int(parent[i])
        return i

    for a, b in pairs:
        x, y = root(a), root(b)
        if x != y:
            parent[max(x, y)] = min(x, y)
    return np.asarray([root(i) for i in range(count)], np.intp)


def chained(names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs that unite all who bear one name."""
    first: dict[str, int] = {}
    return [(first.setdefault(name, i), i) for i, name in enumerate(names) if first.setdefault(name, i) != i]
