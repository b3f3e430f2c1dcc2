"""How finely values are written, seen from the values themselves, so that text and binary formats are judged alike.

A grid is float64, float32, bfloat16, float16, or multiples of 1/k: d decimals (k = 10^d) or votes of k trees. From it
follow how far a row of probabilities may be from one, and what a zero stands for: anything below half the resolution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

EXACT_FLOOR = 1e-12  # of probabilities that were not rounded: no label is impossible
_FINEST_DECIMALS = 8
_MOST_VOTES = 100_000
_SEEN = 2_000_000  # values looked at
_HALF_FLOOR = 2.0**-25  # half of float16's smallest number


@dataclass(frozen=True)
class Precision:
    name: str  # in words
    resolution: float  # distance of neighbouring values; 0 where the floating point itself is the grid
    row_sum: float  # a true row of probabilities is this close to one
    floor: float  # of a probability that is written as 0


def precision_of(values: Matrix) -> Precision:
    """The coarsest grid that all finite values lie on."""
    classes = values.shape[1] if values.ndim == 2 else 1
    flat = values.reshape(-1)
    flat = flat[np.isfinite(flat)]
    if len(flat) > _SEEN:
        flat = flat[:: -(-len(flat) // _SEEN)]
    exact = max(1e-5, 1e-8 * classes)
    single = bool((flat == flat.astype(np.float32)).all())
    steps = _steps(flat, single)
    if steps is not None:
        decimals = len(str(steps)) - 1
        what = f"{decimals} decimals" if steps == 10**decimals else f"multiples of 1/{steps}"
        return Precision(what, 1.0 / steps, max(exact, min(0.1, classes / 2 / steps)), 0.5 / steps)
    if single:
        if _is_bfloat16(flat):
            return Precision("bfloat16", 0.0, 6e-3, EXACT_FLOOR)
        with np.errstate(over="ignore"):
            if (flat == flat.astype(np.float16)).all():
                return Precision("float16", 0.0, 1.5e-3, _HALF_FLOOR)
    return Precision("float32" if single else "float64", 0.0, exact, EXACT_FLOOR)


def _steps(flat: Matrix, single: bool) -> int | None:
    """k where all values are multiples of 1/k, k a power of ten or what the closest two values are apart."""
    size = float(np.abs(flat).max(initial=0.0))
    if not len(flat) or not 0 < size < 1e6:
        return None
    epsilon = 6e-8 if single else 2e-16

    def on_grid(k: int) -> bool:
        slack = k * size * epsilon
        if slack > 0.1:
            return False
        scaled = flat[:1000] * k
        if np.abs(scaled - np.rint(scaled)).max() > slack + 1e-9:
            return False
        scaled = flat * k
        return bool(np.abs(scaled - np.rint(scaled)).max() <= slack + 1e-9)

    for decimals in range(1, _FINEST_DECIMALS + 1):
        if on_grid(10**decimals):
            return int(10**decimals)
    distinct = np.unique(flat)
    if len(distinct) < 3 or len(distinct) > _MOST_VOTES:
        return None
    gaps = np.diff(distinct)
    gaps = gaps[gaps > 4 * size * epsilon]
    k = round(1 / float(gaps.min())) if len(gaps) and gaps.min() > 1 / _MOST_VOTES else 0
    return k if k > 1 and on_grid(k) else None


def _is_bfloat16(flat: Matrix) -> bool:
    bits = flat.astype(np.float32).view(np.uint32)
    return bool(((bits & 0xFFFF) == 0).all())
