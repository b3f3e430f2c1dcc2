from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrant.artifacts.feedback_records import record_at
from calibrant.serve.monitor.log_index import Index


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
    index.add(compacted, 1, [f"c{k}" for k in range(2000)])
    assert list(index.places("a500")) == []
    assert list(index.places("b500")) == [(compacted, 0)]


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
