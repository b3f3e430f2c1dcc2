"""What a reader gives, whatever the format: named columns in the order of the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError

Column = NDArray[Any]  # (N,) or (N, width): numbers, or text as objects with None where nothing stands


@dataclass(frozen=True)
class Columns:
    values: Mapping[str, Column]
    class_names: tuple[str, ...] | None = None  # of integer labels, where the file says them
    notes: tuple[str, ...] = ()  # what the reader had to decide
    beside: tuple[Path, ...] = ()  # other files that were read along

    @property
    def rows(self) -> int:
        return max((len(column) for column in self.values.values()), default=0)


def text_column(values: Iterable[Any]) -> Column:
    """Text as objects; what is missing stays None."""
    listed = list(values)
    column = np.empty(len(listed), object)
    for i, value in enumerate(listed):
        column[i] = None if value is None else str(value)
    return column


def matrix(rows: Sequence[Any], *, name: str, where: Path) -> Column:
    """Lists of equally many numbers as one array; a row that is missing or of another length is named."""
    width = next((len(row) for row in rows if row is not None), 0)
    for number, row in enumerate(rows, 1):
        if row is None:
            raise DataError(f"column `{name}` is empty in row {number}", where=where, fix="drop that row")
        if len(row) != width:
            raise DataError(
                f"column `{name}` has {len(row)} values in row {number} and {width} in the first",
                where=where,
                fix="every row needs a value for each class",
            )
    return numbers([value for row in rows for value in row], name=name, where=where).reshape(len(rows), width)


def numbers(values: Sequence[Any], *, name: str, where: Path) -> Column:
    """As float64; None is NaN, and text names its row."""
    try:
        return np.array([np.nan if v is None else v for v in values], np.float64)
    except (TypeError, ValueError):
        bad = next(i for i, v in enumerate(values) if not _number(v))
        raise DataError(f"column `{name}` holds {values[bad]!r} where a number is expected", where=where) from None


def from_objects(values: Sequence[Any], *, name: str, where: Path) -> Column:
    """A column of Python objects (of JSON, or of a dictionary of lists), as numbers, text, lists of equal length or
    ragged lists of labels."""
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, dict) for v in known):
        raise DataError(f"column `{name}` holds objects", where=where, fix="write one number for each class")
    if known and all(isinstance(v, (list, tuple)) for v in known):
        flat = [x for v in known for x in v]
        same = len({len(v) for v in known}) == 1
        if len(known) == len(values) and same and flat and all(_number(x) for x in flat):
            return matrix(values, name=name, where=where)
        if any(isinstance(x, float) for x in flat):
            return matrix(values, name=name, where=where)  # names the row that is no row of numbers
        column = np.empty(len(values), object)
        for i, value in enumerate(values):
            column[i] = None if value is None else tuple(value)
        return column
    if known and all(isinstance(v, (bool, int)) for v in known) and len(known) == len(values):
        return np.array(values, np.int64)
    if all(_number(v) for v in values):
        return numbers(values, name=name, where=where)
    return text_column(values)


def _number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, np.integer, np.floating))
