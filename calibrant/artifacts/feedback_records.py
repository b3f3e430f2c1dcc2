"""The lines of a feedback log, as they were written or as Parquet; `feedback` says what is in them.

A segment is one file, NAME.feedback.jsonl while it grows and NAME.feedback.parquet once it was compacted. All that read
a log come through here and see the same records at the same places in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from calibrant.errors import FormatError

FORMAT_VERSION = 3  # 2: logits as float16; 3: the largest of each row; a log is written as the oldest that can say it
SUFFIX = ".feedback.jsonl"
PARQUET = ".feedback.parquet"
LABELS, CHOSEN = "labels", "chosen labels"  # an older reader passes over the second


def segments(folder: str | Path) -> list[Path]:
    """In order of their beginning. Where a compaction was killed at its end, a segment is there twice: one counts."""
    found = {segment_name(path): path for suffix in (SUFFIX, PARQUET) for path in Path(folder).glob(f"*{suffix}")}
    return [found[name] for name in sorted(found)]


def segment_name(path: Path) -> str:
    """The same before and after it was compacted."""
    return path.name.removesuffix(SUFFIX).removesuffix(PARQUET)


def is_there(path: Path) -> bool:
    """Whether the log still has the segment, as it was written or compacted."""
    return _now(path).exists()


def remove(path: Path) -> None:
    """A segment, also where it is there twice."""
    for suffix in (SUFFIX, PARQUET):
        path.with_name(segment_name(path) + suffix).unlink(missing_ok=True)


@dataclass
class Damage:
    lines: int = 0


def records(path: Path, damage: Damage | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Offset and content of each whole line; refuses a segment of a newer format."""
    path = _now(path)
    if path.name.endswith(PARQUET):
        from calibrant.artifacts import feedback_parquet

        yield from feedback_parquet.read(path, damage=damage)
        return
    offset = 0
    with open(path, "rb") as stream:
        for line in stream:
            at, offset = offset, offset + len(line)
            record = _parse(line)
            if record is None:
                if damage is not None:
                    damage.lines += 1
                continue
            if record["record"] == "segment" and int(record.get("format_version", 0)) > FORMAT_VERSION:
                raise FormatError(
                    f"feedback format {record['format_version']} is newer than this Calibrant reads ({FORMAT_VERSION})",
                    where=path,
                    fix="update calibrant",
                )
            yield at, record


def records_from(path: Path, start: int) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Offset, content and end of each whole line from `start` on, of a segment that may still be growing.

    What follows the last line break is left for the next time; a damaged line is passed over.
    """
    path = _now(path)
    if path.name.endswith(PARQUET):
        from calibrant.artifacts import feedback_parquet

        yield from ((at, kept, at + 1) for at, kept in feedback_parquet.read(path, start))
        return
    with open(path, "rb") as stream:
        stream.seek(start)
        offset = start
        for line in stream:
            if not line.endswith(b"\n"):
                return
            at, offset = offset, offset + len(line)
            record = _parse(line)
            if record is not None:
                yield at, record, offset


def hold(stream: BinaryIO) -> bool:
    """Takes a segment's lock for as long as it is open: while it may grow nobody compacts or sends it. False where
    another has it, and where there are no locks (Windows, some network file systems)."""
    try:
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def record_at(path: Path, offset: int) -> dict[str, Any] | None:
    """The record whose line begins there, also where its segment was compacted since; None where it is gone."""
    try:
        path = _now(path)
        if path.name.endswith(PARQUET):
            from calibrant.artifacts import feedback_parquet

            return feedback_parquet.record_at(path, offset)
        with open(path, "rb") as stream:
            stream.seek(offset)
            return _parse(stream.readline())
    except OSError:  # dropped by retention
        return None


def _now(path: Path) -> Path:
    """The segment as it is: it may have been compacted since it was listed."""
    table = path.with_name(segment_name(path) + PARQUET)
    return table if not path.exists() and table.exists() else path


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "record" in record else None
