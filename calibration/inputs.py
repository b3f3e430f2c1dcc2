"""What every metric and every fit accepts, checked once and said clearly when it cannot be used.

Probabilities: (N, C), finite, not negative, rows summing to one. Logits: (N, C), finite or -inf, which is log 0: the
class is ruled out, its probability exactly 0 under every map; a row without a finite logit is refused. Labels: N whole
numbers in 0..C-1. Weights: N finite numbers >= 0, not all zero. float32 and float64 keep their precision; anything else
becomes float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.errors import DataError

Floats = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]
Weights = NDArray[np.float64]

# How far a row of probabilities may be from summing to one: rounding of each precision, with room for 20,000 classes.
_ROW_SUM_TOLERANCE = {2: 5e-3, 4: 1e-4, 8: 1e-4}


def check_matrix(values: ArrayLike, name: str) -> Floats:
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[1] < 1:
        raise DataError(f"{name} have shape {array.shape}, expected (rows, classes)")
    if array.shape[0] == 0:
        raise DataError(f"{name} have no rows", fix="check that the file holds labelled samples")
    if array.dtype.kind not in "fiu":
        raise DataError(f"{name} are of type {array.dtype}, expected real numbers")
    if array.dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        array = array.astype(np.float64)
    return array


def check_logits(logits: ArrayLike) -> Floats:
    array = check_matrix(logits, "logits")
    # The sum is finite for finite input unless it overflows; only then is every element looked at.
    with np.errstate(invalid="ignore"):
        total = array.sum(dtype=np.float64)
    if not np.isfinite(total):
        finite = np.isfinite(array)
        out = ruled_out(array)
        broken = (~(finite | out)).any(axis=1) | ~finite.any(axis=1)
        if broken.any():
            raise DataError(
                f"logits of {int(broken.sum())} of {len(array)} rows hold NaN or infinity, or nothing but -infinity",
                fix="drop or repair those rows",
            )
    return array


def ruled_out(logits: Floats) -> NDArray[np.bool_]:
    """Classes of probability exactly 0, (N, C)."""
    out: NDArray[np.bool_] = np.isneginf(logits)
    return out


def finite_logits(logits: Floats, depth: float) -> Floats:
    """-inf replaced by what lies `depth` below the row's log-sum-exp, or by its lowest logit where that is less."""
    out = ruled_out(logits)
    if not out.any():
        return logits
    known = np.where(out, np.inf, logits).min(axis=1, keepdims=True)
    top = logits.max(axis=1, keepdims=True)
    total = top + np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    replaced: Floats = np.where(out, np.minimum(total - depth, known), logits).astype(logits.dtype)
    return replaced


def check_probs(probs: ArrayLike) -> Floats:
    given = np.asarray(probs)
    array = check_matrix(given, "probabilities")
    lowest = float(array.min())
    sums = array.sum(axis=1, dtype=np.float64)
    if np.isnan(lowest) or not np.isfinite(sums).all():
        bad = int((~np.isfinite(array)).any(axis=1).sum())
        raise DataError(
            f"probabilities of {bad} of {len(array)} rows hold NaN or infinity", fix="drop or repair those rows"
        )
    off = np.abs(sums - 1.0)
    worst = float(off.max())
    if lowest < 0:
        looks = "these look like logits" if worst > 0.01 else f"the smallest is {lowest:.3g}"
        raise DataError(f"probabilities are negative ({looks})", fix="pass softmax(logits)")
    itemsize = given.dtype.itemsize if given.dtype.kind == "f" else 8
    if worst > _ROW_SUM_TOLERANCE.get(itemsize, 1e-4):
        row = int(off.argmax())
        what = "are these logits?" if float(array.max()) > 1.5 else "renormalise them"
        raise DataError(
            f"probabilities of {int((off > 1e-4).sum())} of {len(array)} rows do not sum to one "
            f"(row {row} sums to {sums[row]:.6g})",
            fix=f"{what} Pass softmax(logits) or p / p.sum(axis=1)",
        )
    return array


def check_labels(labels: ArrayLike, rows: int, classes: int) -> Labels:
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) != rows:
        raise DataError(f"labels have shape {array.shape} for {rows} rows")
    if array.dtype.kind == "f" and np.array_equal(array, np.floor(array)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise DataError(f"labels are of type {array.dtype}, expected whole numbers 0..{classes - 1}")
    whole = array.astype(np.int64, copy=False)
    low, high = int(whole.min()), int(whole.max())
    if low < 0 or high >= classes:
        raise DataError(
            f"labels contain {low if low < 0 else high} but there are {classes} classes (0..{classes - 1})",
            fix="leave out rows whose label is unknown" if low < 0 else "was it made for another model?",
        )
    return whole


def check_weights(weights: ArrayLike | None, rows: int) -> Weights | None:
    """The weights in float64, or None where all rows weigh the same."""
    if weights is None:
        return None
    array = np.asarray(weights, np.float64)
    if array.shape != (rows,):
        raise DataError(f"weights have shape {array.shape} for {rows} rows")
    if not np.isfinite(array).all() or float(array.min()) < 0 or float(array.sum()) <= 0:
        raise DataError("weights must be finite, not negative and not all zero")
    return array
