"""Folds that stay: which images judge together follows from a hash of (seed, group), not from their position.

A class's groups stand in the order of their hashes and are cut into K equal parts, so every fold has its share of each
class, and an image that comes or goes moves those next to the K - 1 cuts and nobody else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ALWAYS_TRAINS = -1  # the fold of what is never judged


def stable_folds(labels: NDArray[np.int64], groups: Sequence[str], folds: int, *, seed: int = 42) -> NDArray[np.intp]:
    """(N,) the fold of each row, 0 to K - 1. A group is in one fold, that of the class most of it has.

    A class of one group only is never judged: without it no head would know the class.
    """
    rows: dict[str, list[int]] = {}
    for i, name in enumerate(groups):
        rows.setdefault(name, []).append(i)
    classes: dict[int, list[tuple[str, str]]] = {}
    for name, members in rows.items():
        own = labels[members]
        classes.setdefault(int(np.bincount(own).argmax()), []).append((_hash(seed, name), name))
    out = np.full(len(labels), ALWAYS_TRAINS, np.intp)
    for k, hashed in classes.items():
        if len(hashed) < 2:
            continue
        sizes = [len(rows[name]) for _, name in sorted(hashed)]
        turn = int(_hash(seed, f"class {k}")[:8], 16)  # classes of two images do not all judge in the same two folds
        before = 0
        for (_, name), size in zip(sorted(hashed), sizes, strict=True):
            middle = (before + size / 2) / sum(sizes)
            out[rows[name]] = (int(folds * middle) + turn) % folds
            before += size
        if len(set(out[[i for _, name in hashed for i in rows[name]]])) < 2:
            out[rows[sorted(hashed)[0][1]]] = ALWAYS_TRAINS
    return out


def held_out(labels: NDArray[np.int64], groups: Sequence[str], share: float, *, seed: int = 42) -> NDArray[np.bool_]:
    """(N,) which rows are laid aside: a share of every class, the same whatever else is divided later."""
    parts = round(1 / share)
    aside: NDArray[np.bool_] = np.equal(stable_folds(labels, groups, parts, seed=seed + 1), 0)
    return aside


def _hash(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
