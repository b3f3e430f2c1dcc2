"""Columns of an Arrow table: what Parquet holds, whoever wrote it.

Lists (plain, large or of fixed size; of half, float or double) become matrices, dictionaries what they stand for,
missing numbers NaN. Class names are read where Hugging Face's `datasets` puts them, in the schema's metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts.foreign.columns import Column, Columns, from_objects, text_column
from calibrant.artifacts.predictions.file import shards_of
from calibrant.errors import DataError, FormatError


def read_parquet(path: Path) -> Columns:
    """A file, or a folder of shards in order of name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for shard in shards_of(path):
        try:
            tables.append(pq.read_table(shard))
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"not a Parquet file, or a damaged one ({error})", where=shard) from None
    if any(t.schema.names != tables[0].schema.names for t in tables):
        raise DataError("the files have other columns than one another", where=path)
    try:
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise DataError(f"the files do not go together ({error})", where=path) from None
    return from_table(table, path)


def from_table(table: Any, where: Path) -> Columns:
    import pyarrow as pa

    values: dict[str, Column] = {}
    for i, name in enumerate(table.schema.names):
        column = table.column(i)
        if pa.types.is_map(column.type):  # {"cat": .1, "dog": .9}, as JSON lines have it: a column for each class
            rows = [None if row is None else dict(row) for row in column.to_pylist()]
            keys = dict.fromkeys(key for row in rows if row for key in row)
            values |= {
                f"{name}.{k}": from_objects([row and row.get(k) for row in rows], name=str(k), where=where)
                for k in keys
            }
        elif pa.types.is_struct(column.type):
            parts = column.combine_chunks()
            for inner, part in zip(column.type, parts.flatten(), strict=True):
                values[f"{name}.{inner.name}"] = _column(part, f"{name}.{inner.name}", where)
        else:
            values[name] = _column(column, name, where)
    return Columns(values, _names_of_labels(table.schema.metadata or {}, table.schema.names))


def _column(chunked: Any, name: str, where: Path) -> Column:
    import pyarrow as pa

    array = chunked.combine_chunks() if isinstance(chunked, pa.ChunkedArray) else chunked
    if isinstance(array, pa.ChunkedArray):  # no rows, or more than one array can hold
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array, name, where)
    if pa.types.is_boolean(kind) and not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        found: Column = array.to_numpy(zero_copy_only=False)
        return found
    if pa.types.is_decimal(kind):
        return np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_null(kind):
        return text_column([None] * len(array))
    return text_column(array.to_pylist())


def _lists(array: Any, name: str, where: Path) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    inner = array.type.value_type
    if not (pa.types.is_floating(inner) or pa.types.is_integer(inner)):
        return from_objects(array.to_pylist(), name=name, where=where)
    lengths = pc.list_value_length(array)
    widths = pc.unique(lengths.drop_null()).to_pylist() if len(array) else []
    if len(widths) != 1 or array.null_count:
        if pa.types.is_integer(inner):
            return from_objects(array.to_pylist(), name=name, where=where)  # labels, several a row
        lengths_seen = lengths.to_pylist()
        first = next((n for n in lengths_seen if n is not None), 0)
        row = next(i for i, n in enumerate(lengths_seen) if n != first)
        what = "is empty" if lengths_seen[row] is None else f"has {lengths_seen[row]} values, others {first},"
        raise DataError(f"column `{name}` {what} in row {row + 1}", where=where, fix="drop or repair that row")
    flat = array.flatten()
    if flat.null_count:
        row = flat.is_null().to_numpy(zero_copy_only=False).argmax() // widths[0]
        raise DataError(f"column `{name}` has an empty entry in row {row + 1}", where=where, fix="drop that row")
    values: Column = flat.to_numpy(zero_copy_only=False).reshape(len(array), widths[0])
    return values


def _names_of_labels(metadata: dict[bytes, bytes], columns: list[str]) -> tuple[str, ...] | None:
    """info.features.COLUMN.names of `datasets`, of the first column that has them."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        for column in columns:
            names = features.get(column, {}).get("names")
            if isinstance(names, list):
                return tuple(map(str, names))
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return None
