from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrant.artifacts.feedback_records import record_at
from calibrant.serve.monitor.log import index as log_index
from calibrant.serve.monitor.log.index import Index


def test_the_index_tells_ids_apart_from_look_alikes(tmp_path: Path) -> None:
    index = Index()
    assert list(index.places("a")) == []
    for n in range(50):
        index.add(tmp_path / f"{n % 3}", 100 * n, [f"id-{n}-{k}" for k in range(20)])
    assert list(index.places("id-7-3")) == [(tmp_path / "1", 700)]
    assert list(index.places("id-99-3")) == []
    for n in range(50, 600):
        index.add(tmp_path / "9", 100 * n, [f"id-{n}-{k}" for k in range(30)])  # enough for old blocks to be sorted in
    assert list(index.places("id-7-3")) == [(tmp_path / "1", 700)]
    assert list(index.places("id-599-2")) == [(tmp_path / "9", 59900)]


@pytest.mark.parametrize("between", [0, 10_000, 300_000])
def test_of_an_id_that_came_twice_the_first_place_comes_first(between: int, tmp_path: Path) -> None:
    index, path = Index(), tmp_path / "1"
    path.touch()
    index.add(path, 0, ["twice"])
    for start in range(0, between, 1000):
        index.add(path, 10 + start, [f"{start + k}" for k in range(1000)])
    index.add(path, 5, ["x", "twice"])
    assert list(index.places("twice")) == [(path, 0), (path, 5)]
    if between:
        assert list(index.places(f"{between - 1}")) == [(path, between - 990)]


def test_rows_that_the_log_has_dropped_are_forgotten_and_compacted_ones_are_not(tmp_path: Path) -> None:
    index = Index()
    gone, compacted = (tmp_path / f"{name}.feedback.jsonl" for name in ("gone", "compacted"))
    gone.touch()
    for path, name in ((gone, "a"), (compacted, "b")):
        (tmp_path / "compacted.feedback.parquet").touch()
        for start in range(0, 262_000, 1000):
            index.add(path, start, [f"{name}{start + k}" for k in range(1000)])
    gone.unlink()
    index.add(compacted, 1, [f"c{k}" for k in range(30_000)])
    assert list(index.places("a500")) == []
    assert list(index.places("b500")) == [(compacted, 0)]


@pytest.mark.parametrize("full", [False, True])
def test_parts_on_disk_are_joined_and_found_in(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 rows in memory; four parts become one. Also where the disk takes nothing."""
    monkeypatch.setattr(log_index, "_OPEN_ROWS", 64)
    monkeypatch.setattr(log_index, "_PARTS", 4)
    monkeypatch.setattr(log_index, "_REACH", 2)
    if full:
        monkeypatch.setattr(log_index.tempfile, "TemporaryFile", _no_space)
    index, paths = Index(), [tmp_path / name for name in ("1", "2", "3")]
    for path in paths:
        path.touch()
    for n in range(1500):
        index.add(paths[n // 500], 10 * n, [f"{n}", f"{n}-again", "always"] if n % 100 == 0 else [f"{n}"])
    for n in range(1500):
        assert list(index.places(f"{n}")) == [(paths[n // 500], 10 * n)]
    assert list(index.places("800-again")) == [(paths[1], 8000)]
    assert list(index.places("always")) == [(paths[n // 500], 10 * n) for n in range(0, 1500, 100)]
    assert list(index.places("never")) == []
    parts = index._parts
    assert [part.joined for part in parts[:5]] == [True] * 5
    assert sum(part.rows for part in parts) == 1530
    in_memory = sum(part._file is None for part in parts)
    assert in_memory == (len(parts) if full else 1)
    assert sorted(tmp_path.iterdir()) == paths  # the files have no names


def _no_space(**_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_request_of_very_many_rows_finds_its_place(tmp_path: Path) -> None:
    index = Index()
    (tmp_path / "1").touch()
    index.add(tmp_path / "1", 7, [str(k) for k in range(300_000)])
    index.add(tmp_path / "2", 9, ["later"])
    assert list(index.places("299999")) == [(tmp_path / "1", 7)]
    assert list(index.places("later")) == [(tmp_path / "2", 9)]


def test_a_line_is_read_at_its_offset_and_a_lost_segment_is_none(tmp_path: Path) -> None:
    lines = [json.dumps({"record": "x", "n": n}) + "\n" for n in range(3)]
    (tmp_path / "log").write_text("".join(lines))
    assert record_at(tmp_path / "log", len(lines[0])) == {"record": "x", "n": 1}
    assert record_at(tmp_path / "log", 3) is None  # the middle of a line
    assert record_at(tmp_path / "gone", 0) is None


def test_workers_that_write_in_turns_leave_a_segment_in_memory_once(tmp_path: Path) -> None:
    """Each round of a follower lists the folder anew, and thus has other objects of the same paths."""
    index = Index()
    for name in ("1", "2"):
        (tmp_path / name).touch()
    for n in range(10_000):
        index.add(tmp_path / f"{1 + n % 2}", 100 * n, [f"{n}-{k}" for k in range(30)])
    assert list(index.places("7001-3")) == [(tmp_path / "2", 700_100)]
    assert len({id(path) for part in index._parts for path in part.paths}) == 2
    assert max(len(part.paths) for part in index._parts) == 2
    assert len(index._segments) == 2
