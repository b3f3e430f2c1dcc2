"""Parquet shards: rows with the bytes of an image file and its label, as Hugging Face and `calibrant shards` have them.

Columns: `image` (or img, jpg, png, bytes), binary or a struct {bytes, path}; `label` (labels, class), names or numbers;
and where there are `key` (id, __key__), `split` and a column of groups. Labels and keys are read at once, images by
their row, so shuffling, splits and exact resume work as with files. A row group is read as a whole and the last few are
kept, so shards to be read in random order want small ones.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.images.image_shards import KEYS, LABELS, image_column
from calibrant.train.data.image_set import ImageSet, Splits
from calibrant.train.data.labels import class_order, split_name
from calibrant.train.data.split import splits_of

KEPT_BYTES = 64 << 20  # of row groups, a process
_SPLITS = ("train", "val", "test")


@dataclass(frozen=True, slots=True)  # there may be millions of them
class ParquetImage:
    """An image in a row of a Parquet file."""

    path: Path
    column: str  # image, or image.bytes
    group: int
    row: int  # in its group

    def read(self) -> bytes:
        values = _row_groups.get(self.path, self.group, self.column)
        content = values[self.row].as_py()
        if content is None:
            raise DataError("has no bytes in its row", where=self.path)
        return bytes(content)


class _RowGroups:
    """The row groups read last, and open files. Reading is under a lock: Arrow's reader is not for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, Any] = {}
        self._kept: OrderedDict[tuple[Path, int], Any] = OrderedDict()

    def get(self, path: Path, group: int, column: str) -> Any:
        with self._lock:
            found = self._kept.get((path, group))
            if found is None:
                found = self._read(path, group, column)
                self._kept[path, group] = found
                while len(self._kept) > 1 and sum(v.nbytes for v in self._kept.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end((path, group))
            return found

    def _read(self, path: Path, group: int, column: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if path not in self._files:
                self._files[path] = pq.ParquetFile(path, memory_map=True)
            # No threads of Arrow's own: loader workers are forks, and a pool does not survive one.
            values = self._files[path].read_row_group(group, columns=[column], use_threads=False).column(0)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"row group {group} cannot be read ({_first_line(error)})", where=path) from None
        values = values.combine_chunks()
        return values.field("bytes") if "." in column else values

    def forget(self) -> None:
        with self._lock:
            self._files.clear()
            self._kept.clear()


_row_groups = _RowGroups()


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    image: ParquetImage
    label: str
    split: str
    group: str | None


def read_parquet(
    path: str | Path,
    *,
    groups: str | None = None,
    val_fraction: float = 0.2,
    test_fraction: float = 0.2,
    seed: int = 42,
) -> Splits:
    """DIR/*.parquet, or one such file. Splits are those of a column `split`, else of files whose names start with
    train, val or test, else drawn by class; `groups` names a column whose values must not be divided between splits.
    """
    path = Path(path)
    files = [path] if path.is_file() else sorted(path.glob("*.parquet"))
    if not files:
        raise DataError("holds no .parquet files", where=path)
    _row_groups.forget()  # files may have been written anew since
    names: tuple[str, ...] | None = None
    rows: list[_Row] = []
    for i, file in enumerate(files):
        found, named = _index(file, groups)
        if i and named != names:
            raise DataError("names its classes otherwise than the shards before it", where=file)
        names = named
        rows += found
    if not rows:
        raise DataError("holds no rows", where=path)
    names = names or class_order({row.label for row in rows})
    by_split: dict[str, ImageSet] = {}
    for split in (*_SPLITS, "all"):
        part = [row for row in rows if row.split == split]
        if part:
            by_split[split] = _set(part, names, path)
    return splits_of(by_split, names, where=path, val_fraction=val_fraction, test_fraction=test_fraction, seed=seed)


def _index(file: Path, groups: str | None) -> tuple[list[_Row], tuple[str, ...] | None]:
    """The rows of a shard, and the names of its classes where its metadata have them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            image, struct = image_column(schema, file)
            label = next((n for n in LABELS if n in schema.names), None)
            if label is None:
                fix = f"it has {', '.join(schema.names)}"
                raise DataError(f"has no column {', '.join(LABELS[:-1])} or {LABELS[-1]}", where=file, fix=fix)
            if groups is not None and groups not in schema.names:
                raise DataError(f'has no column "{groups}"', where=file, fix=did_you_mean(groups, schema.names))
            key = next((n for n in KEYS if n in schema.names), None)
            split = "split" if "split" in schema.names else None
            wanted = [c for c in (label, key, split, groups) if c is not None]
            if key is None and struct and schema.field(image).type.get_field_index("path") >= 0:
                wanted.append(f"{image}.path")
            table = opened.read(columns=wanted, use_threads=False)
            sizes = [opened.metadata.row_group(g).num_rows for g in range(opened.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as a Parquet file ({_first_line(error)})", where=file) from None
    named = _named_classes(schema, label)
    labels = [_label(v, named, file, row) for row, v in enumerate(table.column(label).to_pylist())]
    keys = _keys(table, key, image, file)
    by_name = next((s for s in _SPLITS if file.name.startswith(s)), "all")
    kinds = [by_name] * len(labels)
    if split is not None:
        kinds = [split_name(str(v), where=file) for v in table.column(split).to_pylist()]
    members = [None] * len(labels) if groups is None else [str(v) for v in table.column(groups).to_pylist()]
    column = f"{image}.bytes" if struct else image
    places = (ParquetImage(file, column, g, row) for g, size in enumerate(sizes) for row in range(size))
    return [_Row(*row) for row in zip(keys, places, labels, kinds, members, strict=True)], named


def _named_classes(schema: Any, label: str) -> tuple[str, ...] | None:
    """The names that Hugging Face's metadata gives to the numbers of the label column."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return tuple(str(name) for name in features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return None


def _label(value: Any, named: tuple[str, ...] | None, file: Path, row: int) -> str:
    if value is None or isinstance(value, float) or (isinstance(value, int) and value < 0) or str(value).strip() == "":
        raise DataError(f"the label of row {row} is {value!r}, and training needs a class", where=file)
    if named is None or not isinstance(value, int):
        return str(value).strip()
    if value >= len(named):
        raise DataError(f"the label of row {row} is {value}, but it names {len(named)} classes", where=file)
    return named[value]


def _keys(table: Any, key: str | None, image: str, file: Path) -> list[str]:
    """What tells the rows apart: the key, the path beside the bytes, else the number of the row."""
    values: list[Any] = []
    if key is not None:
        values = table.column(key).to_pylist()
    elif image in table.column_names:
        values = [v["path"] for v in table.column(image).to_pylist()]
    if not values or any(v is None for v in values) or len(set(values)) < len(values):
        values = list(range(table.num_rows))
    return [f"{file.name}/{v}" for v in values]


def _set(rows: Sequence[_Row], names: tuple[str, ...], where: Path) -> ImageSet:
    if len(names) < 2:
        raise DataError("has fewer than two classes", where=where)
    index = {name: k for k, name in enumerate(names)}
    strange = next((row for row in rows if row.label not in index), None)
    if strange is not None:
        raise DataError(f'{strange.key} is of class "{strange.label}", which its shard does not name', where=where)
    groups = [row.group for row in rows if row.group is not None]
    return ImageSet(
        tuple(row.key for row in rows), np.asarray([index[row.label] for row in rows], np.int64),
        files=tuple(row.image for row in rows), groups=tuple(groups) if groups else None,
    )  # fmt: skip


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:120]
