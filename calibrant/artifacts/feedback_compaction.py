"""Turns the closed segments of a feedback log into Parquet, while a server may be writing others.

The table is written under a temporary name, read back and compared, gets its name, and only then the segment goes. A
kill between the last two leaves both: `segments` counts the table, and the next compaction removes what is left. A
segment is closed once nobody holds its lock, which a server does for as long as it may append.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibrant.artifacts import feedback_parquet, feedback_scores
from calibrant.artifacts.feedback_logits import arrays
from calibrant.artifacts.feedback_records import PARQUET, SUFFIX, Damage, hold, records, segment_name, segments
from calibrant.atomic import replacing
from calibrant.errors import DataError, FormatError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compacted:
    segments: int
    bytes_before: int
    bytes_after: int
    still_open: int  # that a server may append to
    kept: int  # as they are: what is in them fits into no table


def compact(folder: Path) -> Compacted:
    """Every closed segment of a log."""
    if not segments(folder):
        raise DataError("holds no feedback log", where=folder, fix="serve with --feedback-log FOLDER")
    done = before = after = still_open = kept = 0
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as stream:  # dropped, or another was faster
            if not hold(stream):
                still_open += 1
            elif os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                size = path.stat().st_size
                try:
                    table = _table(path)
                except FormatError as error:
                    log.warning("%s", error)
                    kept += 1
                    continue
                path.unlink(missing_ok=True)
                done, before, after = done + 1, before + size, after + table.stat().st_size
    return Compacted(done, before, after, still_open, kept)


def _table(path: Path) -> Path:
    out = path.with_name(segment_name(path) + PARQUET)
    for left in path.parent.glob(f".{out.stem}.*.tmp{out.suffix}*"):  # of a compaction that was killed
        left.unlink(missing_ok=True)
    if out.exists():  # one that was killed at its very end
        return out
    age = path.stat()
    with replacing(out) as temporary:
        damage = Damage()
        feedback_parquet.write(temporary, records(path, damage), damage)
        _compare(path, temporary)
        os.utime(temporary, ns=(age.st_atime_ns, age.st_mtime_ns))  # by which --keep-days goes
    return out


def _compare(path: Path, table: Path) -> None:
    was = ((at, record) for at, record in records(path) if record.get("ids") != [])
    try:
        for (at, record), (place, copy) in zip(was, feedback_parquet.read(table), strict=True):
            if at != place or not _same(record, copy):
                raise ValueError(f"the line at {at}")
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"does not fit into a table ({error}), so it stays as it is", where=path) from None


def _same(record: dict[str, Any], copy: dict[str, Any]) -> bool:
    if record["record"] != "predictions":
        return record == copy
    first = (*arrays(record), feedback_scores.flat(record))
    second = (*arrays(copy), feedback_scores.flat(copy))
    alike = all(
        (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b, equal_nan=True))
        for a, b in zip(first, second, strict=True)
    )
    told = {"ms": [None] * len(record["ids"]), **{k: v for k, v in record.items() if v is not None}}
    known = {"ms": [None] * len(record["ids"]), **copy}
    for numbers in ("logits", "classes", "rest", "dtype", feedback_scores.FIELD):
        told.pop(numbers, None)
        known.pop(numbers, None)
    return alike and told == known
