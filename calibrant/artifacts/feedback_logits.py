"""How the logits of a feedback log are kept: as they are, as float16, or of many classes the largest of each row.

Of a row that was cut to its largest, `rest` is what each of the others would be if they were all alike: the log-sum-exp
of them less the log of their number. Softmax of such a row gives the kept classes exactly what they had, and the others
together what they had together. So confidence, prediction and whether it was right are exact, and the NLL where the
label is among the kept. What needs the others one by one (another temperature or prior, class shares, prediction sets)
is refused: `refuse_cut`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError

Logits = NDArray[np.float32]
CUT = "logits_kept"  # of each row: in what predictions say about the model
FEWEST = 5  # so that the top-5 accuracy stays exact
_MOST_HALF = 65504.0  # the largest float16


@dataclass(frozen=True)
class Kept:
    """`half`: float16, off by up to a thousandth of their size. `top`: so many of each row; None keeps all."""

    half: bool = False
    top: int | None = None

    @property
    def format_version(self) -> int:
        """Of the log: the oldest that can say this."""
        return 3 if self.top is not None else 2 if self.half else 1

    def cuts(self, classes: int) -> int | None:
        """So many are left of a row of so many classes; None where all are."""
        return None if self.top is None or self.top >= classes else self.top

    def encode(self, logits: Logits) -> dict[str, Any]:
        """The fields of a record. logits: (rows, classes)."""
        kind = {"dtype": "float16"} if self.half else {}
        cut = self._cut(logits)
        if cut is None:
            return {**kind, "logits": _text(self._rounded(logits))}
        classes, values, rest = cut
        numbers = classes.astype(_number(logits.shape[1]))
        fields = {"top": classes.shape[1], "classes": _text(numbers), "rest": _text(rest.astype("<f4"))}
        return {**kind, **fields, "logits": _text(self._rounded(values))}

    def seen(self, logits: Logits) -> Logits:
        """As a reader of the log will find them."""
        cut = self._cut(logits)
        if cut is None:
            return self._rounded(logits).astype(np.float32)
        classes, values, rest = cut
        return _completed(logits.shape[1], classes, self._rounded(values).astype(np.float32), rest)

    def _rounded(self, values: Logits) -> NDArray[Any]:
        if not self.half:
            return values.astype("<f4", copy=False)
        return np.clip(values, -_MOST_HALF, _MOST_HALF).astype("<f2")

    def _cut(self, logits: Logits) -> tuple[NDArray[np.intp], Logits, Logits] | None:
        """Of each row: the numbers of its largest in order, these, and what stands for each of the others."""
        count = logits.shape[1]
        top = self.cuts(count)
        if top is None:
            return None
        classes = np.sort(np.argpartition(logits, count - top, axis=1)[:, count - top :], axis=1)
        others = logits.astype(np.float64)
        np.put_along_axis(others, classes, -np.inf, axis=1)
        highest = np.maximum(others.max(axis=1, keepdims=True), -1e300)  # all may be ruled out
        with np.errstate(divide="ignore"):
            total = highest[:, 0] + np.log(np.exp(others - highest).sum(axis=1))
        rest = (total - math.log(count - top)).astype(np.float32)
        return classes, np.take_along_axis(logits, classes, axis=1), rest


class Arrays(NamedTuple):
    """Of a record of predictions, flat; `classes` and `rest` where the rows were cut."""

    values: Logits
    classes: NDArray[np.integer[Any]] | None
    rest: Logits | None


def arrays(record: Mapping[str, Any]) -> Arrays:
    """Of a line, in base64, or of a table, as they are."""
    values = _array(record["logits"], "<f2" if record.get("dtype") == "float16" else "<f4")
    values = values.astype(np.float32, copy=False)
    if record.get("top") is None:
        return Arrays(values, None, None)
    classes = _array(record["classes"], "<u2")
    if len(classes) != len(values):  # four bytes each, of more than 65,536 classes
        classes = _array(record["classes"], "<u4")
    return Arrays(values, classes, _array(record["rest"], "<f4"))


def decode(record: Mapping[str, Any], classes: int) -> Logits:
    """(rows, classes) of a record of predictions."""
    rows, found = len(record["ids"]), arrays(record)
    if found.classes is None or found.rest is None:
        return found.values.reshape(rows, classes)
    numbers = found.classes.reshape(rows, -1).astype(np.intp)
    return _completed(classes, numbers, found.values.reshape(rows, -1), found.rest)


def refuse_cut(model: Mapping[str, Any], where: str | Path | None, what: str) -> None:
    """`model`: what predictions say about it (`Source.model`). `what` needs every class of a row."""
    if model.get(CUT) is not None:
        raise DataError(
            f"{what} needs all classes of a row, and this log kept the {model[CUT]} largest",
            where=where,
            fix="serve with --log-float16 in place of --log-top, or make predictions with calibrant predict",
        )


def said_of_cut(logits: Logits, labels: NDArray[np.int64], kept: int) -> str:
    """What a log of the largest logits can tell; labels of -1 are not known."""
    known = np.flatnonzero(labels >= 0)
    among = (logits[known, labels[known]] > logits[known].min(axis=1)).mean() if len(known) else 1.0
    return (
        f"the {kept} largest of {logits.shape[1]:,} logits a row were kept, and the sum of the others: accuracy, "
        f"confidence and ECE are exact, NLL for the {100 * float(among):.1f} % of labels among them, and what is said "
        "by class is near"
    )


def _completed(classes: int, numbers: NDArray[np.intp], values: Logits, rest: Logits) -> Logits:
    full = np.repeat(rest.astype(np.float32)[:, None], classes, axis=1)
    np.put_along_axis(full, numbers, values, axis=1)
    return full


def _number(classes: int) -> str:
    return "<u2" if classes <= 1 << 16 else "<u4"


def _text(values: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _array(field: str | NDArray[Any], kind: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(field), kind) if isinstance(field, str) else field
