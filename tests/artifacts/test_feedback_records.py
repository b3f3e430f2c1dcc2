"""The lines of a log, while they are written and after they were compacted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts import feedback_records
from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_records import (
    PARQUET,
    SUFFIX,
    Damage,
    hold,
    record_at,
    records,
    records_from,
    remove,
    segment_name,
    segments,
)
from calibrant.artifacts.feedback_writer import FeedbackWriter

MODEL = Model("birds", "1", "abc", ("auk", "crane"))


def _log(folder: Path) -> Path:
    writer = FeedbackWriter(folder)
    for n in range(3):
        writer.predictions(MODEL, [f"{n}/a", f"{n}/b"], [1.0, 2.0], np.float32([[n, 0], [0, n]]))
        writer.labels("birds", [f"{n}/a"], [1], at=5.0)
    writer.close()
    return writer.path


def test_reading_on_gives_what_is_left_before_and_after_a_compaction(tmp_path: Path) -> None:
    path = _log(tmp_path)
    lines = list(records_from(path, 0))
    assert [record["record"] for _, record, _ in lines] == ["segment", "model", *["predictions", "labels"] * 3]
    _, _, end = lines[4]
    left = [at for at, _, _ in records_from(path, end)]
    assert left == [at for at, _, _ in lines[5:]]
    compact(tmp_path)
    for place in (path, *segments(tmp_path)):  # who listed the segment before, and who lists the table
        found = list(records_from(place, end))
        assert [(at, r["record"], r["ids"]) for at, r, _ in found] == [
            (at, r["record"], r["ids"]) for at, r, _ in lines[5:]
        ]
        assert list(records_from(place, found[-1][2])) == []
        assert [at for at, _ in records(place)] == [at for at, _, _ in lines]
        assert record_at(place, lines[2][0])["ids"] == ["0/a", "0/b"]  # type: ignore[index]
    remove(path)
    assert record_at(path, lines[2][0]) is None
    assert not list(tmp_path.iterdir())


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / f"x{SUFFIX}"
    whole = json.dumps({"record": "model"}).encode() + b"\n"
    path.write_bytes(whole + b'{"record": "mo')
    assert [end for _, _, end in records_from(path, 0)] == [len(whole)]
    damage = Damage()
    assert len(list(records(path, damage))) == 1
    assert damage.lines == 1


def test_a_segment_that_is_there_twice_counts_once_and_the_order_is_that_of_their_beginning(tmp_path: Path) -> None:
    for name in (f"1-a{PARQUET}", f"2-a{SUFFIX}", f"2-a{PARQUET}", f"3-a{SUFFIX}", ".1-a.feedback.9.tmp.parquet"):
        (tmp_path / name).touch()
    assert [p.name for p in segments(tmp_path)] == [f"1-a{PARQUET}", f"2-a{PARQUET}", f"3-a{SUFFIX}"]
    assert [segment_name(p) for p in segments(tmp_path)] == ["1-a", "2-a", "3-a"]


def test_who_writes_a_segment_holds_it_until_it_is_closed(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    with open(writer.path, "rb") as other:
        assert not hold(other)
    writer.close()
    with open(writer.path, "rb") as other:
        assert hold(other)


def test_where_files_cannot_be_locked_nobody_holds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def no_locks(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with open(_log(tmp_path), "rb") as stream:
        assert not feedback_records.hold(stream)
    assert compact(tmp_path).still_open == 1
