"""Parquet shards: encoded images in a column `image`, as bytes or as Hugging Face's struct {bytes, path}.

`label` (or `labels`, `class`) may be missing; it holds class names or numbers. Where Hugging Face's metadata names the
numbers, the names count, since another model may number its classes otherwise. `key` (or `id`, `__key__`), else the
path beside the bytes, else the number of the row tells the rows apart. Where there is a column `split`, only the rows
of the split that is asked for are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.errors import DataError, did_you_mean
from calibrant.images.image_shards import KEYS, LABELS, image_column
from calibrant.serve.batch.picture_source import Content, Picture, label_of

_ROWS_AT_ONCE = 64  # a row group may be larger than memory


@dataclass(frozen=True)
class _Shard:
    path: Path
    image: str
    struct: bool
    first: int  # number of its first picture in all shards
    row_groups: tuple[int, ...]  # rows of each
    rows: tuple[int, ...]  # those that are wanted


class ParquetShards:
    """Keys and labels are read at once, images as a stream."""

    def __init__(self, files: Sequence[Path], class_names: Sequence[str], split: str = "test") -> None:
        self.pictures: list[Picture] = []
        self._splits: set[str] = set()
        self._shards = [self._open(path, class_names, split) for path in files]
        if not self.pictures:
            found = ", ".join(sorted(self._splits))
            raise DataError(f'has no rows of the split "{split}"' if found else "holds no rows", where=files[0],
                            fix=f"choose with --split: {found}" if found else None)  # fmt: skip

    def contents(self, start: int, stop: int) -> Iterator[tuple[Picture, Content]]:
        for shard in self._shards:
            rows = shard.rows[max(0, start - shard.first) : max(0, stop - shard.first)]
            if rows:
                number = max(start, shard.first)
                for content in _stream(shard, rows):
                    yield self.pictures[number], content
                    number += 1

    def _open(self, path: Path, class_names: Sequence[str], split: str) -> _Shard:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(path) as file:
                schema = file.schema_arrow
                image, struct = image_column(schema, path)
                label = next((n for n in LABELS if n in schema.names), None)
                key = next((n for n in KEYS if n in schema.names), None)
                if key is None and struct and schema.field(image).type.get_field_index("path") >= 0:
                    key = f"{image}.path"
                column = "split" if "split" in schema.names else None
                small = file.read(columns=[c for c in (label, key, column) if c is not None])
                groups = tuple(file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))
        except (pa.ArrowException, OSError) as error:
            said = str(error).splitlines()[0][:120]
            raise DataError(f"cannot be read as a Parquet file ({said})", where=path) from None
        ids = _ids(small, key, path.name, sum(groups))
        values = small.column(label).to_pylist() if label is not None else [None] * len(ids)
        names = _named_classes(schema, label)
        splits = [split] * len(ids) if column is None else [_split(v) for v in small.column(column).to_pylist()]
        self._splits.update(splits if column is not None else ())
        rows = tuple(row for row, name in enumerate(splits) if name == _split(split) or column is None)
        shard = _Shard(path, image, struct, len(self.pictures), groups, rows)
        for id_, value in ((ids[row], values[row]) for row in rows):
            if names is not None and isinstance(value, int) and 0 <= value < len(names):
                value = names[value]
                if value not in class_names:
                    raise DataError(f'its class "{value}" is not a class of the model', where=path,
                                    fix=did_you_mean(value, class_names))  # fmt: skip
            self.pictures.append(Picture(id_, path, label_of(value, class_names, where=path, id_=id_)))
        return shard


def _named_classes(schema: Any, label: str | None) -> list[str] | None:
    """The names that Hugging Face's metadata gives to the numbers of the label column."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[label]["names"]]
    except (KeyError, TypeError, ValueError):
        return None


def _ids(table: Any, key: str | None, file: str, rows: int) -> list[str]:
    if key is None:
        return [f"{file}/{row}" for row in range(rows)]
    column = table.column(key.partition(".")[0])
    if "." in key:
        import pyarrow.compute as pc

        column = pc.struct_field(column, "path")
    values = column.to_pylist()
    if any(value is None for value in values) or len(set(values)) < len(values):
        return [f"{file}/{row}" for row in range(rows)]
    return [f"{file}/{value}" for value in values]


def _split(value: Any) -> str:
    word = str(value).strip().lower()
    return {"training": "train", "valid": "val", "validation": "val", "dev": "val", "testing": "test"}.get(word, word)


def _stream(shard: _Shard, rows: tuple[int, ...]) -> Iterator[Content]:
    """The bytes of these rows; row groups without any of them are not read."""
    import pyarrow.parquet as pq

    wanted = set(rows)
    column = f"{shard.image}.bytes" if shard.struct else shard.image
    start = 0
    with pq.ParquetFile(shard.path) as file:
        for group, size in enumerate(shard.row_groups):
            row, start = start, start + size
            if wanted.isdisjoint(range(row, start)):
                continue
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[column]):
                for value in batch.column(0).field("bytes") if shard.struct else batch.column(0):
                    if row in wanted:
                        yield _Bytes(value)
                    row += 1


@dataclass(frozen=True)
class _Bytes:
    value: Any  # a binary scalar of Arrow, copied when it is asked for

    def __call__(self) -> bytes:
        content = self.value.as_py()
        if content is None:
            raise DataError("has no bytes in its row", where="image")
        return bytes(content)
