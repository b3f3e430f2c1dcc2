"""One Parquet file of predictions: whether it is ours, what it says, and its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions.columns import is_group
from calibrant.artifacts.predictions.rows import Predictions
from calibrant.artifacts.predictions.source import KEY, Source
from calibrant.errors import DataError, FormatError


def _begins(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(4)


def is_own(path: Path) -> bool:
    """Was it written by Calibrant? What is no Parquet file at all is not."""
    from calibrant.artifacts.foreign.formats import ENDINGS

    ending = path.suffix.lower()
    if not path.is_file() or (ending != ".parquet" and ending in ENDINGS) or _begins(path) != b"PAR1":
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return KEY in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def describe(shard: Path) -> tuple[Source, int]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(shard) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"not a Parquet file, or a damaged one ({error})", where=shard) from None
    if "logits" not in schema.names:
        raise FormatError(
            f"has no column `logits` (it has {', '.join(schema.names[:8])})",
            where=shard,
            fix="make it again with calibrant predict",
        )
    kind = schema.field("logits").type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise FormatError(f"column `logits` is {kind}, expected a fixed-size list of float32", where=shard)
    source = Source.from_json(schema.metadata[KEY], where=shard)
    if len(source.class_names) != kind.list_size:
        raise FormatError(f"{kind.list_size} logits a row but {len(source.class_names)} class names", where=shard)
    return source, rows


def from_arrow(batch: Any, source: Source, where: Path) -> Predictions:
    n = batch.num_rows
    names = batch.schema.names

    def matrix(name: str) -> NDArray[np.float32]:
        column = batch.column(name)
        if column.null_count:
            raise DataError(f"column `{name}` has {column.null_count} empty rows", where=where)
        width = column.type.list_size
        flat: NDArray[np.float32] = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32, copy=False)
        return flat.reshape(n, width)

    labels = np.full(n, -1, np.int64)
    if "label" in names:
        labels = batch.column("label").fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if n and (labels.max() >= len(source.class_names) or labels.min() < -1):
            bad = int(labels.max() if labels.max() >= len(source.class_names) else labels.min())
            raise DataError(
                f"labels contain {bad} but there are {len(source.class_names)} classes",
                where=where,
                fix="was it written for another model?",
            )
    ids = tuple(batch.column("id").to_pylist()) if "id" in names else tuple(map(str, range(n)))
    split = tuple(batch.column("split").to_pylist()) if "split" in names else None
    named = tuple(batch.column("label_name").to_pylist()) if "label_name" in names else None
    present = None
    if source.independent:
        present = np.full((n, len(source.class_names)), -1, np.int8)
        if "labels" in names:
            flat = batch.column("labels").flatten().fill_null(-1)
            present = flat.to_numpy(zero_copy_only=False).astype(np.int8).reshape(n, -1)
    return Predictions(
        ids,
        labels,
        matrix("logits"),
        source,
        matrix("features") if "features" in names else None,
        split,
        named,
        present,
        batch.column("weight").to_numpy(zero_copy_only=False) if "weight" in names else None,
        {n.removeprefix("group_"): tuple(batch.column(n).to_pylist()) for n in names if is_group(n)},
    )
