"""What a log keeps: the newest segments, by size and by age."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model, read_feedback, segments
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter

MODEL = Model("birds", "1", "abc", ("auk", "crane"))


def aged(folder: Path, *hours: float) -> list[str]:
    """Segments that were last written so many hours ago, and their names."""
    names = []
    for n, age in enumerate(hours):
        path = folder / f"20200101T0000{n:02d}-1-{n:06d}.feedback.jsonl"
        path.write_text('{"record":"segment","kind":"feedback","format_version":1,"time":0}\n')
        os.utime(path, (time.time() - 3600 * age,) * 2)
        names.append(path.name)
    return names


@pytest.mark.parametrize(("days", "kept"), [(0.5, 1), (1.0, 2), (3.0, 3)])
def test_segments_older_than_so_many_days_go(days: float, kept: int, tmp_path: Path) -> None:
    names = aged(tmp_path, 30.0, 20.0, 10.0)
    writer = FeedbackWriter(tmp_path, keep_days=days)
    assert [p.name for p in segments(tmp_path) if p != writer.path] == names[3 - kept :]
    writer.close()


def test_the_oldest_go_when_the_folder_outgrows_its_bytes_and_what_another_may_be_writing_stays(tmp_path: Path) -> None:
    names = aged(tmp_path, 3.0, 2.0, 0.0)
    size = (tmp_path / names[0]).stat().st_size
    writer = FeedbackWriter(tmp_path, keep_bytes=2 * size)
    assert [p.name for p in segments(tmp_path) if p != writer.path] == names[1:]
    writer.close()
    writer = FeedbackWriter(tmp_path, keep_bytes=0)
    assert names[2] in [p.name for p in segments(tmp_path)]  # written less than a minute ago
    assert names[1] not in [p.name for p in segments(tmp_path)]
    writer.close()


def test_a_segment_ends_once_it_has_its_bytes(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path, segment_bytes=400)
    for n in range(8):
        writer.predictions(MODEL, [f"r{n}"], [1.0], np.zeros((1, 2), np.float32))
    writer.close()
    found = segments(tmp_path)
    assert len(found) > 2
    for path in found[:-1]:
        lines = path.read_bytes().splitlines(keepends=True)
        assert sum(map(len, lines)) >= 400
        assert sum(map(len, lines[:-1])) < 400


def test_a_segment_ends_at_its_age_once_something_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    writer = FeedbackWriter(tmp_path, segment_seconds=60)
    now[0] += 61
    writer.model(MODEL)
    writer.rotate()
    assert len(segments(tmp_path)) == 1  # a quiet server makes no files
    writer.labels("birds", ["x"], [1])
    now[0] += 59
    writer.rotate()
    assert len(segments(tmp_path)) == 1
    now[0] += 2
    writer.rotate()
    assert len(segments(tmp_path)) == 2
    writer.close()


def test_float16_takes_half_the_room_and_old_readers_are_told(tmp_path: Path) -> None:
    logits = np.array([[1.5, -20.25, 7.0], [1e6, 0.125, -3.0]], np.float32)
    model = Model("m", "1", "ab", ("a", "b", "c"))
    for half in (False, True):
        writer = FeedbackWriter(tmp_path / str(half), kept=Kept(half=half))
        writer.predictions(model, ["x", "y"], [1.0, 2.0], logits)
        writer.close()
    lines = [json.loads(x) for x in segments(tmp_path / "True")[0].read_text().splitlines()]
    assert lines[0]["format_version"] == 2
    assert json.loads(segments(tmp_path / "False")[0].read_text().splitlines()[0])["format_version"] == 1
    assert len(base64.b64decode(lines[2]["logits"])) == 2 * 3 * 2
    got = read_feedback(tmp_path / "True").served[0].logits
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, [[1.5, -20.25, 7.0], [65504.0, 0.125, -3.0]])
