"""Classes that stand for others, as labels and columns that were sorted in two ways leave them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.verdict.case import Case, JudgedRows, Matrix, Trial
from calibrant.calibration.verdict.words import figure
from calibrant.errors import DataError

_FEWEST = 10  # rows predicted as a class, before it is said what they are
_NAMED = 3


def order_found(predicted: NDArray[np.intp], labels: NDArray[np.int64], classes: int) -> NDArray[np.intp] | None:
    """(C,) for each class the one that more than half of the rows predicted as it are labelled with, itself where none
    is; None where nothing moves or two classes would become one, which is confusion and no order."""
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (predicted, labels), 1)
    rows, most = counts.sum(axis=1), counts.argmax(axis=1)
    clear = (rows >= _FEWEST) & (counts[np.arange(classes), most] > rows / 2)
    found = np.where(clear, most, np.arange(classes))
    if (found == np.arange(classes)).all() or len(set(found.tolist())) < classes:
        return None
    return found


def order_trial(case: Case) -> Trial | None:
    """The classes in the order that the rows show, where it is another; each half is told by the other half."""
    if case.rows is None:
        return None
    rows = case.rows()
    predicted = rows.judged.argmax(axis=1)
    moved = order_found(predicted, rows.labels, case.statistics.classes)
    if moved is None:
        return None
    others = np.flatnonzero(moved != np.arange(len(moved))).tolist()
    pairs = [f'"{case.name(k)}" is "{case.name(int(moved[k]))}"' for k in others]
    more = f" and {len(pairs) - _NAMED:,} more" if len(pairs) > _NAMED else ""
    now, then = (float((each == rows.labels).mean()) for each in (predicted, moved[predicted]))
    said = f"{', '.join(pairs[:_NAMED])}{more}; {figure(then)} % are right then, {figure(now)} % now"
    text = f"Put the classes in the order of the labels ({said})"
    return Trial("order", frozenset({"class", "group", "ranking"}), text, None, _in_order)


def _in_order(rows: JudgedRows) -> Matrix:
    out = np.empty(rows.judged.shape, np.float64)
    half = np.random.default_rng(0).permutation(len(rows)) % 2 == 0
    for judged, told in ((half, ~half), (~half, half)):
        classes = rows.judged.shape[1]
        moved = order_found(rows.judged[told].argmax(axis=1), rows.labels[told], classes)
        if moved is None:
            raise DataError("half of the rows do not show another order of the classes")
        out[np.ix_(judged, moved)] = rows.judged[judged]
    return out
