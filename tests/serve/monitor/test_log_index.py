from __future__ import annotations

import json
from pathlib import Path

from calibrant.artifacts.feedback_records import record_at
from calibrant.serve.monitor.log_index import Index


def test_the_index_tells_ids_apart_from_look_alikes(tmp_path: Path) -> None:
    index = Index()
    assert index.find("a") is None
    for n in range(50):
        index.add(tmp_path / f"{n % 3}", 100 * n, [f"id-{n}-{k}" for k in range(20)])
    assert index.find("id-7-3") == (tmp_path / "1", 700)
    assert index.find("id-99-3") is None
    for n in range(50, 600):  # enough for old blocks to be sorted in
        index.add(tmp_path / "9", 100 * n, [f"id-{n}-{k}" for k in range(3)])
    assert index.find("id-7-3") == (tmp_path / "1", 700)
    assert index.find("id-599-2") == (tmp_path / "9", 59900)


def test_a_line_is_read_at_its_offset_and_a_lost_segment_is_none(tmp_path: Path) -> None:
    lines = [json.dumps({"record": "x", "n": n}) + "\n" for n in range(3)]
    (tmp_path / "log").write_text("".join(lines))
    assert record_at(tmp_path / "log", len(lines[0])) == {"record": "x", "n": 1}
    assert record_at(tmp_path / "log", 3) is None  # the middle of a line
    assert record_at(tmp_path / "gone", 0) is None
