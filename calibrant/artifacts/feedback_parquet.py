"""A closed segment of a feedback log as Parquet: smaller, and open to any tool that reads Parquet.

A row for each answer and each label, in the order of the log. `line` is where the row's line began in the segment that
the table was made of, so who knows a row by its place still finds it. What is neither, such as what describes a model,
stands as JSON in `other`. `read` gives back the records of the lines.

    line, record, model, sha256, version, id, time, ms, label, logits, classes, rest, feature_scores, other

Tables from before features were watched have no `feature_scores`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback_scores
from calibrant.artifacts.feedback_logits import arrays
from calibrant.artifacts.feedback_records import CHOSEN, LABELS, Damage
from calibrant.errors import FormatError

KEY = b"calibrant"
FORMAT_VERSION = 1
_GROUP_BYTES = 2 << 20  # of logits in a row group, which is read as a whole for one late label
_GROUP_ROWS = 1 << 13


def write(out: Path, lines: Iterator[tuple[int, dict[str, Any]]], damage: Damage) -> None:
    """`damage` may grow until the last line."""
    import pyarrow.parquet as pq

    schema = _schema()
    # Floats compress where their bytes are apart; ids hardly do.
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": ["record", "model", "sha256", "version"],
        "use_byte_stream_split": ["logits.list.element", f"{feedback_scores.FIELD}.list.element", "rest", "time", "ms"],
    }
    with pq.ParquetWriter(out, schema, **options) as writer:
        rows = _Rows()
        for offset, record in lines:
            rows.add(offset, record)
            if len(rows.line) >= _GROUP_ROWS or rows.bytes >= _GROUP_BYTES:
                writer.write_table(rows.table(schema))
                rows = _Rows()
        writer.write_table(rows.table(schema))
        header = {"kind": "feedback", "format_version": FORMAT_VERSION, "damaged_lines": damage.lines}
        writer.add_key_value_metadata({KEY: json.dumps(header)})


def read(path: Path, start: int = 0, damage: Damage | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Place and content of each line from `start` on."""
    header, groups = _described(path)
    if damage is not None:
        damage.lines += int(header["damaged_lines"])
    for number, (_, last) in enumerate(groups):
        if last >= start:
            yield from (found for found in _records(path, number) if found[0] >= start)


def record_at(path: Path, offset: int) -> dict[str, Any] | None:
    stamp = path.stat()
    for number, (first, last) in enumerate(_kept_description(path, stamp.st_mtime_ns, stamp.st_ino)):
        if first <= offset <= last:
            found = _kept_records(path, stamp.st_mtime_ns, stamp.st_ino, number)
            return next((record for at, record in found if at == offset), None)
    return None


@lru_cache(64)
def _kept_description(path: Path, *_: int) -> list[tuple[int, int]]:
    return _described(path)[1]


@lru_cache(4)  # labels of one day are mostly of answers of one day
def _kept_records(path: Path, modified: int, inode: int, number: int) -> list[tuple[int, dict[str, Any]]]:
    return list(_records(path, number))


def _described(path: Path) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """What the file says about itself, and the first and the last line of each row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            header: dict[str, Any] = json.loads((file.metadata.metadata or {})[KEY])
            if int(header["format_version"]) > FORMAT_VERSION:
                what = f"feedback table of format {header['format_version']} is newer than this Calibrant reads"
                raise FormatError(f"{what} ({FORMAT_VERSION})", where=path, fix="update calibrant")
            groups = []
            for number in range(file.num_row_groups):
                found = file.metadata.row_group(number)
                if found.num_rows:
                    lines = found.column(0).statistics
                    groups.append((int(lines.min), int(lines.max)))
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"is no table of a feedback log ({error})", where=path) from None
    return header, groups


def _records(path: Path, group: int) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        table = file.read_row_group(group).combine_chunks()
    values = {name: table.column(name).to_pylist() for name in _PLAIN}
    parts = {name: _Lists(table.column(name)) for name in _LISTS if name in table.column_names}
    lines = np.asarray(values["line"])
    begins = np.flatnonzero(np.diff(lines, prepend=-1)) if len(lines) else lines
    for first, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(lines)], strict=True):
        yield values["line"][first], _record(slice(first, stop), values, parts)


def _record(rows: slice, values: dict[str, list[Any]], parts: dict[str, _Lists]) -> dict[str, Any]:
    kind, first = values["record"][rows.start], rows.start
    if values["other"][first] is not None:
        other: dict[str, Any] = json.loads(values["other"][first])
        return other
    record: dict[str, Any] = {"record": kind, "ids": values["id"][rows]}
    if kind in (LABELS, CHOSEN):
        return record | {
            "model": values["model"][first],
            "time": values["time"][first],
            "labels": values["label"][rows],
        }
    record |= {"sha256": values["sha256"][first], "time": values["time"][rows], "logits": parts["logits"].of(rows)}
    if values["version"][first] is not None:
        record["version"] = values["version"][first]
    if any(v is not None for v in values["ms"][rows]):
        record["ms"] = values["ms"][rows]
    if values["rest"][first] is not None:
        classes = parts["classes"].of(rows)
        rest = np.array(values["rest"][rows], np.float32)
        record |= {"top": len(classes) // len(rest), "classes": classes, "rest": rest}
    if feedback_scores.FIELD in parts and len(scores := parts[feedback_scores.FIELD].of(rows)):
        record[feedback_scores.FIELD] = scores
    return record


_PLAIN = ("line", "record", "model", "sha256", "version", "id", "time", "ms", "label", "rest", "other")
_LISTS = ("logits", "classes", feedback_scores.FIELD)


class _Lists:
    """A column of lists, flat."""

    def __init__(self, column: Any) -> None:
        chunk = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        self._offsets = chunk.offsets.to_numpy()
        self._values = chunk.values.to_numpy(zero_copy_only=False)

    def of(self, rows: slice) -> NDArray[Any]:
        found: NDArray[Any] = self._values[self._offsets[rows.start] : self._offsets[rows.stop]]
        return found


@dataclass
class _Rows:
    """What waits to be a row group: whole lines."""

    line: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _PLAIN if name != "line"})
    lists: dict[str, tuple[list[NDArray[Any]], list[int]]] = field(
        default_factory=lambda: {name: ([], []) for name in _LISTS}
    )
    bytes: int = 0

    def add(self, offset: int, record: dict[str, Any]) -> None:
        kind = record["record"]
        if kind == "predictions":
            self._answers(offset, record)
        elif kind in (LABELS, CHOSEN):
            n = len(record["ids"])
            self._append(
                offset,
                n,
                record=[kind] * n,
                model=[record["model"]] * n,
                id=record["ids"],
                time=[record["time"]] * n,
                label=record["labels"],
            )
        else:
            self._append(offset, 1, record=[kind], other=[json.dumps(record)])

    def _answers(self, offset: int, record: dict[str, Any]) -> None:
        n, found = len(record["ids"]), arrays(record)
        self._append(
            offset,
            n,
            record=["predictions"] * n,
            sha256=[record["sha256"]] * n,
            version=[record.get("version")] * n,
            id=record["ids"],
            time=record["time"],
            ms=record.get("ms") or [None] * n,
            rest=[None] * n if found.rest is None else found.rest.tolist(),
            logits=found.values,
            classes=found.classes,
            feature_scores=feedback_scores.flat(record),
        )

    def _append(self, offset: int, n: int, **given: Any) -> None:
        self.line += [offset] * n
        for name, column in self.columns.items():
            column += given.get(name, [None] * n)
        for name, (values, sizes) in self.lists.items():
            flat = given.get(name)
            if flat is not None:
                values.append(flat)
                self.bytes += flat.nbytes
            sizes += [0 if flat is None or not n else flat.size // n] * n

    def table(self, schema: Any) -> Any:
        import pyarrow as pa

        columns = {"line": self.line, **self.columns}
        found = [
            self._list(name, f.type) if name in self.lists else pa.array(columns[name], f.type)
            for f in schema
            for name in [f.name]
        ]
        return pa.Table.from_arrays(found, schema=schema)

    def _list(self, name: str, kind: Any) -> Any:
        import pyarrow as pa

        values, sizes = self.lists[name]
        flat = np.concatenate(values) if values else np.zeros(0)
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, kind.value_type))


def _schema() -> Any:
    import pyarrow as pa

    kinds: Sequence[tuple[str, Any]] = (
        ("line", pa.int64()),
        ("record", pa.string()),
        ("model", pa.string()),
        ("sha256", pa.string()),
        ("version", pa.string()),
        ("id", pa.string()),
        ("time", pa.float64()),
        ("ms", pa.float64()),
        ("label", pa.int64()),
        ("logits", pa.list_(pa.field("element", pa.float32()))),
        ("classes", pa.list_(pa.field("element", pa.int32()))),
        ("rest", pa.float32()),
        (feedback_scores.FIELD, pa.list_(pa.field("element", pa.float32()))),
        ("other", pa.string()),
    )
    return pa.schema(kinds)
