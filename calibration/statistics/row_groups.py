"""Groups of rows (a hospital, a camera, a patient): each value of a group column is judged by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.formula import Formula
from calibrant.calibration.statistics.accumulate import (
    Accumulator,
    statistics_of,
    statistics_of_probabilities,
)
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.errors import DataError

FEWEST, MOST = 10, 20  # rows of a value that is judged; values of a column, those with most rows
_BATCH_NUMBERS = 1 << 19  # logits read at a time
Columns = Mapping[str, Sequence[Any]]  # a value for each row
Judged = Mapping[str, Sequence[str]]  # the values that are judged by themselves


def as_columns(by: Mapping[str, ArrayLike] | ArrayLike, rows: int) -> dict[str, tuple[str, ...]]:
    """What a caller gives as groups: a value for each row, or several such columns by name."""
    found = {str(k): np.asarray(v) for k, v in by.items()} if isinstance(by, Mapping) else {"group": np.asarray(by)}
    for name, values in found.items():
        if values.shape != (rows,):
            raise DataError(
                f"groups `{name}` have shape {values.shape} for {rows} rows", fix="give a value for each row"
            )
    return {name: tuple(map(_text, values)) for name, values in found.items()}


def worth_judging(columns: Columns) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The values to be judged of each column, and what must be said of the others."""
    judged, notes = {}, []
    for name, values in columns.items():
        found, counts = np.unique(np.array([_text(v) for v in values], dtype=object), return_counts=True)
        order = [i for i in np.argsort(-counts, kind="stable") if counts[i] >= FEWEST][:MOST]
        judged[name] = tuple(sorted(found[i] for i in order))
        if len(order) < len(found):
            notes.append(
                f"group `{name}`: {len(order)} of its {len(found):,} values are judged by themselves, the {MOST} with "
                f"most rows that have {FEWEST} or more"
            )
    return judged, tuple(notes)


def of_file(file: PredictionsFile, formula: Formula, judged: Judged) -> dict[tuple[str, str], Statistics]:
    """Of each group of a file's labelled rows through a formula, read in bounded memory."""
    classes = len(file.source.class_names)
    found = {(c, v): Accumulator(classes) for c, values in judged.items() for v in values}
    if not found:
        return {}
    for batch in file.batches(max(1024, _BATCH_NUMBERS // classes), features=formula.reads_features):
        part = batch.labelled()
        if not len(part):
            continue
        z = part.logits if formula.plain else formula.logits(part.logits, part.features)
        for column, value, rows in _split(part.groups, judged):
            found[column, value].add(z[rows], part.labels[rows])
    return {key: accumulator.finish() for key, accumulator in found.items()}


def of_rows(
    logits: NDArray[np.float64], labels: NDArray[np.int64], columns: Columns, judged: Judged
) -> dict[tuple[str, str], Statistics]:
    """The same of rows in memory."""
    return {(c, v): statistics_of(logits[rows], labels[rows]) for c, v, rows in _split(columns, judged)}


def of_probabilities(
    probs: NDArray[np.floating[Any]], labels: NDArray[np.int64], columns: Columns, judged: Judged
) -> dict[tuple[str, str], Statistics]:
    return {(c, v): statistics_of_probabilities(probs[rows], labels[rows]) for c, v, rows in _split(columns, judged)}


def _split(columns: Columns, judged: Judged) -> Iterator[tuple[str, str, NDArray[np.intp]]]:
    for column, chosen in judged.items():
        values = np.array([_text(v) for v in columns[column]], dtype=object)
        for value in chosen:
            rows = np.flatnonzero(values == value)
            if len(rows):
                yield column, value, rows


def _text(value: Any) -> str:
    return "" if value is None else str(value)
