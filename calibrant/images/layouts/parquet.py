"""Parquet shards: encoded images in a column `image`, as bytes or as Hugging Face's struct {bytes, path}.

`label` (or `labels`, `class`, `fine_label`) may be missing; it holds class names or numbers, and where Hugging Face's
metadata names the numbers, the names count, since another model may number its classes otherwise. `key` (or `id`,
`__key__`), else the path beside the bytes, else the number of the row tells the rows apart. `split` and a column of
groups count where they are. Labels and keys are read at once, images by their row, so shuffling, splits and exact
resume work as with files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.images.files import any_picture
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import class_order, split_name, split_of_file
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing
from calibrant.images.row_groups import ParquetImage, ParquetShard, RowGroups, first_line

# Names that a column goes by; the first is what Calibrant writes.
IMAGES = ("image", "img", "jpg", "png", "bytes")
LABELS = ("label", "labels", "class", "fine_label")
KEYS = ("key", "id", "__key__")


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    image: ParquetImage
    label: str | None
    split: str
    group: str | None


def read(path: Path, wishes: Wishes) -> ImageListing:
    """DIR/*.parquet (or DIR/data/*.parquet), or one such file. Splits are those of a column `split`, else what the
    names of the files begin with."""
    kept = RowGroups()
    names: tuple[str, ...] | None = None
    rows: list[_Row] = []
    columns: list[str] = []
    for i, file in enumerate(shards(path)):
        found, named, columns = _index(file, wishes, kept)
        if i and named != names:
            raise DataError("names its classes otherwise than the shards before it", where=file)
        names = named
        rows += found
    if not rows:
        raise DataError("holds no rows", where=path)
    given = names is not None
    names = names or class_order({row.label for row in rows if row.label is not None})
    splits = dict.fromkeys(row.split for row in rows)
    sets = {split: _set([row for row in rows if row.split == split], names) for split in splits}
    bare = f"has no column {', '.join(LABELS[:-1])} or {LABELS[-1]} (it has {', '.join(columns)})"
    return ImageListing(path, names, sets, named=given, numbered=not given, bare=bare)


def shards(path: Path) -> list[Path]:
    """The files, which datasets of the Hub keep in a folder `data`."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".parquet" else []
    return [p for p in sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet")) if p.is_file()]


def image_column(schema: Any, file: Path) -> tuple[str, bool]:
    """Its name, and whether it is a struct with the bytes in a field, as Hugging Face writes it."""
    import pyarrow.types as types

    for name in (*IMAGES, *schema.names):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        if types.is_binary(kind) or types.is_large_binary(kind):
            return name, False
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            return name, True
    fix = "is it a predictions file?" if "logits" in schema.names else "write encoded images to a column `image`"
    raise DataError(f"has no column of image bytes (it has {', '.join(schema.names[:8])})", where=file, fix=fix)


def _index(file: Path, wishes: Wishes, kept: RowGroups) -> tuple[list[_Row], tuple[str, ...] | None, list[str]]:
    """The rows of a shard, the names of its classes where its metadata have them, and its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = wishes.groups
    try:
        with pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            image, struct = image_column(schema, file)
            label = next((n for n in LABELS if n in schema.names), None)
            if groups is not None and groups not in schema.names:
                raise DataError(f'has no column "{groups}"', where=file, fix=did_you_mean(groups, schema.names))
            key = next((n for n in KEYS if n in schema.names), None)
            split = "split" if "split" in schema.names else None
            wanted = [c for c in (label, key, split, groups) if c is not None]
            if key is None and struct and schema.field(image).type.get_field_index("path") >= 0:
                wanted.append(f"{image}.path")
            table = opened.read(columns=wanted, use_threads=False)
            sizes = tuple(opened.metadata.row_group(g).num_rows for g in range(opened.num_row_groups))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as a Parquet file ({first_line(error)})", where=file) from None
    count = sum(sizes)
    named = _named_classes(schema, label)
    values = [None] * count if label is None else table.column(label).to_pylist()
    labels = [_label(v, named, file, row) for row, v in enumerate(values)]
    keys = _keys(table, key, image, file, count)
    kinds = [split_of_file(file.name, wishes.split)] * count
    if split is not None:
        kinds = [split_name(str(v)) for v in table.column(split).to_pylist()]
    members = [None] * count if groups is None else [str(v) for v in table.column(groups).to_pylist()]
    shard = ParquetShard(file, f"{image}.bytes" if struct else image, sizes, kept)
    places = (ParquetImage(shard, g, row) for g, size in enumerate(sizes) for row in range(size))
    return [_Row(*row) for row in zip(keys, places, labels, kinds, members, strict=True)], named, schema.names


def _named_classes(schema: Any, label: str | None) -> tuple[str, ...] | None:
    """The names that Hugging Face's metadata gives to the numbers of the label column."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(str(name) for name in features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


def _label(value: Any, named: tuple[str, ...] | None, file: Path, row: int) -> str | None:
    """The name of a class, or None: without a value, or with -1, a row has no label."""
    if isinstance(value, float):
        raise DataError(f"the label of row {row} is {value!r}, which is no class", where=file)
    if value is None or (isinstance(value, int) and value < 0) or str(value).strip() == "":
        return None
    if named is None or not isinstance(value, int):
        found = str(value).strip()
        if named is not None and found not in named:
            raise DataError(f'row {row} is of class "{found}", which its shard does not name', where=file)
        return found
    if value >= len(named):
        raise DataError(f"the label of row {row} is {value}, but it names {len(named)} classes", where=file)
    return named[value]


def _keys(table: Any, key: str | None, image: str, file: Path, rows: int) -> list[str]:
    """What tells the rows apart: the key, the path beside the bytes, else the number of the row."""
    values: list[Any] = []
    if key is not None:
        values = table.column(key).to_pylist()
    elif image in table.column_names:
        values = [v["path"] for v in table.column(image).to_pylist()]
    if len(values) != rows or any(v is None for v in values) or len(set(values)) < rows:
        values = list(range(rows))
    return [f"{file.name}/{v}" for v in values]


def _set(rows: Sequence[_Row], names: tuple[str, ...]) -> ImageSet:
    index: dict[str | None, int] = {name: k for k, name in enumerate(names)}
    groups = [row.group for row in rows if row.group is not None]
    return ImageSet(
        tuple(row.key for row in rows),
        np.asarray([index.get(row.label, -1) for row in rows], np.int64),
        files=tuple(row.image for row in rows),
        groups=tuple(groups) if groups else None,
    )


PARQUET = Layout(
    "parquet",
    "`DIR/train-000.parquet ...` with the columns `image` (bytes, or Hugging Face's struct) and `label`",
    lambda path: bool(shards(path)) and (path.is_file() or not any_picture(path)),
    read,
    wishes=("groups",),
)
