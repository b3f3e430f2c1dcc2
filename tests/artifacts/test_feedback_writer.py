from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model, read_feedback, segments
from calibrant.artifacts.feedback_writer import FeedbackWriter

_GMTIME = time.gmtime
MODEL = Model("birds", "1", "abc", ("auk", "crane"))


def _logits(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32)


class FullDisk:
    """Takes the first bytes of a write and fails, as a disk does that has just run full."""

    def __init__(self, stream: Any, room: int) -> None:
        self.stream, self.room = stream, room

    def write(self, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written, self.room = self.stream.write(bytes(data)[: self.room]), 0
        return int(written)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def test_a_full_disk_leaves_whole_lines_and_later_ones_are_found_by_their_offset(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(MODEL, ["a"], [1.0], _logits(1))
    stream = writer._stream
    for room in (0, 7, 60):
        writer._stream = FullDisk(stream, room)  # type: ignore[assignment]
        with pytest.raises(OSError, match="No space"):
            writer.predictions(MODEL, ["lost"], [2.0], _logits(1))
        with pytest.raises(OSError, match="No space"):
            writer.labels("birds", ["a"], [0])
    writer._stream = stream
    path, offset = writer.predictions(MODEL, ["b"], [3.0], _logits(1, 2))
    writer.close()
    with open(path, "rb") as file:
        file.seek(offset)
        assert json.loads(file.readline())["ids"] == ["b"]
    log = read_feedback(tmp_path)
    assert log.served[0].ids == ("a", "b")
    assert log.damaged_lines == 0


def test_a_segment_that_cannot_be_begun_is_begun_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = FeedbackWriter(tmp_path, segment_bytes=1)
    writer.predictions(MODEL, ["a"], [1.0], _logits(1))

    def full(self: FeedbackWriter, record: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FeedbackWriter, "_line", full)
        with pytest.raises(OSError, match="No space"):
            writer.predictions(MODEL, ["lost"], [2.0], _logits(1))
    writer.predictions(MODEL, ["b"], [3.0], _logits(1))
    writer.close()
    assert all(path.read_bytes().startswith(b'{"record":"segment"') for path in segments(tmp_path))
    assert read_feedback(tmp_path).served[0].ids == ("a", "b")


def test_threads_that_share_a_log_keep_their_lines_apart(tmp_path: Path) -> None:
    """The monitors of several models write one log, each from its own thread."""
    writer = FeedbackWriter(tmp_path, segment_bytes=20_000)
    places: list[tuple[str, Path, int]] = []

    def write(name: str) -> None:
        for n in range(150):
            places.append((f"{name}{n}", *writer.predictions(MODEL, [f"{name}{n}"], [0.0], _logits(1))))
            writer.labels("birds", [f"{name}{n}"], [1])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    writer.close()
    for id_, path, offset in places:
        with open(path, "rb") as file:
            file.seek(offset)
            assert json.loads(file.readline())["ids"] == [id_]
    assert len(places) == len(read_feedback(tmp_path).served[0].ids) == 600


def test_a_clock_that_was_set_back_does_not_put_later_labels_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last label of an id counts, and segments are read in order of their names."""
    now = time.time()
    for step, label in enumerate([0, 1]):
        monkeypatch.setattr(time, "time", lambda step=step: now - 7200 * step)
        monkeypatch.setattr(time, "gmtime", lambda at=None, step=step: _GMTIME(now - 7200 * step if at is None else at))
        writer = FeedbackWriter(tmp_path)
        writer.predictions(MODEL, ["a"], [1.0], _logits(1))
        writer.labels("birds", ["a"], [label])
        writer.close()
    assert read_feedback(tmp_path).served[0].labels.tolist() == [1]


def test_segments_rotate_and_the_oldest_go(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path, segment_bytes=2000, keep_bytes=6000)
    for n in range(100):
        writer.predictions(MODEL, [f"row-{n}"], [float(n)], _logits(1, n))
    writer.close()
    assert 3 <= len(segments(tmp_path)) <= 6
    ids = read_feedback(tmp_path).served[0].ids
    assert ids[-1] == "row-99"
    assert ids == tuple(f"row-{n}" for n in range(100 - len(ids), 100))  # the newest, without a gap


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_kill_9_leaves_a_readable_log_without_a_gap(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from calibrant.artifacts.feedback import Model\n"
        "from calibrant.artifacts.feedback_writer import FeedbackWriter\n"
        "w = FeedbackWriter(sys.argv[1]); m = Model('birds', '1', 'abc', ('auk', 'crane'))\n"
        "for n in range(10**9):\n"
        "    w.predictions(m, [str(n)], [0.0], np.zeros((1, 2), np.float32)); print(n, flush=True)\n"
    )
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    for _ in range(200):
        process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    said = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    last = int(said[-1]) if said else 199
    log = read_feedback(tmp_path)
    ids = log.served[0].ids
    assert ids == tuple(map(str, range(len(ids))))
    assert len(ids) >= last
    assert log.damaged_lines <= 1
    assert (log.served[0].labels == -1).all()
