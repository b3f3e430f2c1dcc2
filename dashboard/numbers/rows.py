"""Single rows of a predictions file: which lie in a bin, which are the worst. Read on the first click only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.statistics.bins import equal_mass_index, equal_width_index
from calibrant.dashboard.folder.contents import opened
from calibrant.dashboard.numbers.memory import give_back
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.errors import DataError

_BATCH_NUMBERS = 1 << 17


@dataclass(frozen=True)
class Rows:
    """The labelled rows, in order of the file. `position` is where each stands in the file."""

    position: NDArray[np.int64]
    confidence: NDArray[np.float64]
    predicted: NDArray[np.int32]
    label: NDArray[np.int32]

    @property
    def right(self) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = self.predicted == self.label
        return same


@dataclass(frozen=True)
class Row:
    id: str
    label: int
    predicted: int
    confidence: float


@lru_cache(4)
def rows_of(scored: Scored) -> Rows:
    """Confidence, prediction and label of each row: 24 bytes a row."""
    file = opened(scored.files)
    formula = scored.formula()
    position, confidence = np.empty(file.rows, np.int64), np.empty(file.rows, np.float64)
    predicted, label = np.empty(file.rows, np.int32), np.empty(file.rows, np.int32)
    start = kept = 0
    rows = max(1024, _BATCH_NUMBERS // len(file.source.class_names))
    for batch in file.batches(rows, features=formula.reads_features):
        known = np.flatnonzero(batch.labels >= 0)
        if len(known):
            part = batch.rows(known)
            probs = formula.probabilities(part.logits, part.features)
            here = slice(kept, kept + len(known))
            predicted[here] = probs.argmax(axis=1)
            confidence[here] = probs[np.arange(len(known)), predicted[here]]
            position[here], label[here] = start + known, batch.labels[known]
            kept += len(known)
        start += len(batch)
    if not kept:
        raise DataError("no row has a label", where=scored.path.path.name)
    give_back()
    return Rows(position[:kept], confidence[:kept], predicted[:kept], label[:kept])


def in_bin(
    rows: Rows,
    bins: int,
    number: int,
    predicted: tuple[int, ...] | None,
    *,
    mass: bool = False,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Rows of the equal-width bin (1 is the lowest), or of that of equal mass: the wrong ones first, each half by
    falling confidence. `weights`: of each true class, for bins of equal mass under a target prior."""
    chosen = None if predicted is None else np.flatnonzero(np.isin(rows.predicted, predicted))
    confidence = rows.confidence if chosen is None else rows.confidence[chosen]
    if mass:
        label = rows.label if chosen is None else rows.label[chosen]
        bin_of = equal_mass_index(confidence, bins, None if weights is None else weights[label])
    else:
        bin_of = equal_width_index(confidence, bins)
    inside = np.flatnonzero(bin_of == number - 1)
    index: NDArray[np.int64] = inside if chosen is None else chosen[inside]
    return index[np.lexsort((-rows.confidence[index], rows.right[index]))]


def worst(
    rows: Rows, kind: Literal["over", "under"], predicted: tuple[int, ...] | None, most: int
) -> NDArray[np.int64]:
    """Over: wrong with the highest confidence. Under: right with the lowest."""
    chosen = rows.right if kind == "under" else ~rows.right
    if predicted is not None:
        chosen &= np.isin(rows.predicted, predicted)
    index = np.flatnonzero(chosen)
    order = rows.confidence[index] if kind == "under" else -rows.confidence[index]
    return index[np.argsort(order, kind="stable")[:most]]


def read(scored: Scored, rows: Rows, index: NDArray[np.int64]) -> list[Row]:
    ids = _ids(scored, rows.position[index])
    return [
        Row(name, int(rows.label[i]), int(rows.predicted[i]), float(rows.confidence[i]))
        for name, i in zip(ids, index, strict=True)
    ]


def _ids(scored: Scored, positions: NDArray[np.int64]) -> list[str]:
    """Ids of some rows, from the row groups that hold them."""
    import pyarrow.parquet as pq

    file_of = opened(scored.files)
    if file_of.foreign is not None:
        return [file_of.foreign.ids[p] for p in positions.tolist()]
    found: dict[int, str] = {}
    start = 0
    for shard in file_of.shards:
        with pq.ParquetFile(shard) as file:
            named = "id" in file.schema_arrow.names
            for group in range(file.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                here = positions[(positions >= start) & (positions < start + size)]
                if len(here):
                    ids = here.tolist()
                    if named:
                        ids = file.read_row_group(group, columns=["id"]).column(0).take(here - start).to_pylist()
                    found |= dict(zip(here.tolist(), map(str, ids), strict=True))
                start += size
    give_back()
    return [found[p] for p in positions.tolist()]
