"""Labels of any shape as class numbers, or as a matrix of 0 and 1 where they are independent.

Whole numbers (also as text or floats), names, one-hot rows, several labels a row. -1 means unknown. Names are joined by
name and never by position: where the columns have no names, names as labels are refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError, did_you_mean

Column = NDArray[Any]
# Read as they stand, -1 is unknown, and only rows of class 1 would be judged.
_TWO_SIGNS = "labels are -1 and 1 and none is 0: -1 may be the other class, or unknown"
_ZERO_AND_ONE = "write 0 and 1, and nothing where a label is unknown"
_TRUTH = {"false": 0, "true": 1}


@dataclass(frozen=True)
class Labelled:
    """`numbers` (N,), or `present` (N, L) of 0, 1 and -1 where the labels do not exclude one another."""

    numbers: NDArray[np.int64] | None
    present: NDArray[np.int8] | None = None


def several(column: Column | None) -> bool:
    """Does a row name several labels, or none, as only independent labels do?"""
    if column is None:
        return False
    if column.dtype == object:
        lists = [v for v in column if isinstance(v, tuple)]
        return any(len(v) != 1 for v in lists)
    if column.ndim == 1 or column.shape[1] == 1:
        return False
    return not bool((_zero_one(column).clip(0).sum(axis=1) == 1).all())


def read_labels(
    column: Column | None,
    *,
    rows: int,
    names: Sequence[str] | None,
    classes: int,
    independent: bool,
    where: Path,
) -> Labelled:
    """`names`: of the columns, None where they have none."""
    if column is None:
        empty = np.full((rows, classes), -1, np.int8) if independent else None
        return Labelled(None if independent else np.full(rows, -1, np.int64), empty)
    if len(column) != rows:
        raise DataError(f"has {len(column):,} labels for {rows:,} rows of scores", where=where)
    if independent:
        return Labelled(None, _present(column, names, classes, where))
    if column.ndim == 2 and column.shape[1] > 1:
        if column.shape[1] != classes:
            raise DataError(f"one-hot labels have {column.shape[1]} columns for {classes} classes", where=where)
        return Labelled(_zero_one(column, where).argmax(axis=1).astype(np.int64))
    flat = column.reshape(-1)
    if flat.dtype == object:
        words = [v[0] if isinstance(v, tuple) and len(v) == 1 else v for v in flat]
        return Labelled(_named([None if w is None or w == "" else str(w) for w in words], names, classes, where))
    return Labelled(_whole(flat, names, classes, where))


def _named(words: list[str | None], names: Sequence[str] | None, classes: int, where: Path) -> NDArray[np.int64]:
    place = {name: k for k, name in enumerate(names or ())}
    if not {w for w in words if w is not None} <= place.keys():  # an accent may be a letter's part or a sign of its own
        composed = {unicodedata.normalize("NFC", name): name for name in place}
        if len(composed) == len(place):
            words = [None if w is None else composed.get(unicodedata.normalize("NFC", w), w) for w in words]
    seen = {w for w in words if w is not None}
    if seen <= place.keys():
        return np.array([-1 if w is None else place[w] for w in words], np.int64)
    if names is None and classes == 2 and {w.lower() for w in seen} <= _TRUTH.keys():  # Parquet has a type for it
        return np.array([-1 if w is None else _TRUTH[w.lower()] for w in words], np.int64)
    if all(_is_whole(w) for w in seen):
        whole = np.array([np.nan if w is None else float(w) for w in words])
        return _whole(whole, names, classes, where)
    unknown = sorted(seen - place.keys())[0]
    if names is None:
        raise DataError(
            f'labels are names ("{unknown}"), and nothing says which column is which class',
            where=where,
            fix="name the columns after the classes, or give the names in order: --classes names.txt",
        )
    raise DataError(
        f'label "{unknown}" is none of the {classes} classes', where=where, fix=did_you_mean(unknown, names)
    )


def _whole(values: NDArray[Any], names: Sequence[str] | None, classes: int, where: Path) -> NDArray[np.int64]:
    two_signs = set(np.unique(values).tolist()) == {-1, 1}
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        if np.isinf(values).any() or not np.array_equal(values[known], np.floor(values[known])):
            bad = values[known][values[known] != np.floor(values[known])]
            shown = f"{bad[0]:g}" if len(bad) else "infinity"
            raise DataError(f"labels are no whole numbers ({shown})", where=where, fix="is it another column?")
        values = np.where(known, values, -1)
    if values.dtype.kind not in "fiub":
        raise DataError(f"labels are of type {values.dtype}", where=where)
    y = values.astype(np.int64)
    known_labels = y[y != -1]
    if not len(known_labels):
        return y
    low, high = int(known_labels.min()), int(known_labels.max())
    if classes == 2 and two_signs and "-1" not in (names or ()):
        raise DataError(_TWO_SIGNS, where=where, fix=_ZERO_AND_ONE)
    if names is not None and all(_is_whole(n) for n in names):
        place = {int(float(n)): k for k, n in enumerate(names)}
        if set(np.unique(known_labels).tolist()) <= place.keys():
            return np.array([place.get(v, -1) for v in y.tolist()], np.int64)
    if low == 1 and high == classes:
        raise DataError(
            f"labels run from 1 to {classes} and none is 0: they count from one", where=where, fix="subtract 1"
        )
    if low < 0 or high >= classes:
        bad_label = low if low < 0 else high
        raise DataError(
            f"labels contain {bad_label} but there are {classes} classes",
            where=where,
            fix="classes are numbered from 0; was it written for another model?",
        )
    return y


def _present(column: Column, names: Sequence[str] | None, classes: int, where: Path) -> NDArray[np.int8]:
    if column.dtype == object:
        out = np.zeros((len(column), classes), np.int8)
        for i, row in enumerate(column):
            if row is None:
                out[i] = -1
                continue
            words = list(row) if isinstance(row, tuple) else [row]
            if not all(isinstance(w, str) for w in words):
                words = [str(int(w)) if float(w).is_integer() else str(w) for w in words]
            out[i, _named(list(words), names, classes, where)] = 1
        return out
    if column.ndim == 1 and classes == 1:
        column = column[:, None]
    if column.ndim == 1:
        one = _whole(column, names, classes, where)
        out = np.zeros((len(column), classes), np.int8)
        known = one >= 0
        out[np.flatnonzero(known), one[known]] = 1
        out[~known] = -1
        return out
    if column.shape[1] != classes:
        raise DataError(f"labels have {column.shape[1]} columns for {classes} labels", where=where)
    return _zero_one(column, where)


def _zero_one(column: Column, where: Path | None = None) -> NDArray[np.int8]:
    """0, 1, and -1 where it is NaN or -1."""
    if where is not None and set(np.unique(column).tolist()) == {-1, 1}:
        raise DataError(_TWO_SIGNS, where=where, fix=_ZERO_AND_ONE)
    values = np.where(np.isfinite(column.astype(np.float64)), column, -1).astype(np.float64)
    if not np.isin(values, (-1, 0, 1)).all():
        bad = float(values[~np.isin(values, (-1, 0, 1))][0])
        raise DataError(f"labels in several columns hold {bad:g}, expected 0 and 1", where=where)
    return values.astype(np.int8)


def _is_whole(text: str) -> bool:
    try:
        return float(text).is_integer()
    except ValueError:
        return False
