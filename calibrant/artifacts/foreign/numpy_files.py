"""npz, and npy: one array, with its labels in a file beside it. Object arrays are pickles, which are never read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from calibrant.artifacts.foreign.columns import Column, Columns, text_column
from calibrant.errors import CalibrantError, DataError, FormatError

_SCORES = re.compile(
    r"logits?|prob(?:abilitie)?s?|proba|scores?|predictions?|preds?|outputs?|features?|embeddings?|(?<![a-z])x(?![a-z])",
    re.IGNORECASE,
)
_LABELS = ("labels", "label", "targets", "target", "y_true", "y")


def read_npz(path: Path) -> Columns:
    try:
        # A stream of our own: on a damaged file numpy would leave its own open.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if not hasattr(arrays, "files"):
                raise FormatError("is not an npz archive", where=path)
            return Columns(_named({name: _plain(arrays[name], name, path) for name in arrays.files}))
    except CalibrantError:
        raise
    except Exception as error:  # numpy, zipfile and zlib have errors of their own
        raise _refused(error, path) from None


def _named(values: dict[str, Column]) -> dict[str, Column]:
    """np.savez(FILE, logits, labels) calls them arr_0 and arr_1: a matrix, and what is as long, in either order."""
    first, second = values.get("arr_0"), values.get("arr_1")
    if first is not None and second is not None and first.ndim == 1 and second.ndim == 2:
        first, second = second, first
    if len(values) != 2 or first is None or second is None or first.ndim != 2 or len(first) != len(second):
        return values
    return values if second.dtype.kind == "f" and second.ndim == 2 else {"scores": first, "labels": second}


def read_npy(path: Path) -> Columns:
    """One array; if it is scores or features, labels from a file of like name: test_logits.npy, test_labels.npy."""
    values = {path.stem: _array(path)}
    labels = _labels_beside(path)
    if labels is not None:
        values["labels"] = _array(labels)
    if labels is None:
        return Columns(values)
    return Columns(values, beside=(labels,))


def _array(path: Path) -> Column:
    try:
        with open(path, "rb") as stream:
            return _plain(np.load(stream, allow_pickle=False), path.stem, path)
    except CalibrantError:
        raise
    except Exception as error:
        raise _refused(error, path) from None


def _labels_beside(path: Path) -> Path | None:
    found = list(_SCORES.finditer(path.stem))
    for match in reversed(found):
        for word in _LABELS:
            beside = path.with_name(path.stem[: match.start()] + word + path.stem[match.end() :] + path.suffix)
            if beside != path and beside.is_file():
                return beside
    return None


def _plain(array: Column, name: str, path: Path) -> Column:
    if array.dtype.kind in "US":
        return text_column(np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array)
    if array.dtype.kind not in "fiub":
        raise DataError(f"array `{name}` is of type {array.dtype}, expected numbers or text", where=path)
    return array


def _refused(error: Exception, path: Path) -> FormatError:
    if "pickle" in str(error) or "Object arrays" in str(error):
        return FormatError("holds object arrays, which are pickles", where=path, fix="save text as names.astype(str)")
    return FormatError(f"not a numpy file, or a damaged one ({error})", where=path)
