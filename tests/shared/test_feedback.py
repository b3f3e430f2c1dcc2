from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from calibrant.errors import DataError, FormatError
from calibrant.feedback import FeedbackWriter, Model, read_feedback, segments

MODEL = Model("birds", "1", "abc", ("auk", "crane"))


def _logits(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32)


def test_what_is_written_is_read_back_joined_with_its_labels(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.labels("birds", ["b"], [1])  # before its prediction
    writer.predictions(MODEL, ["a", "b", "c"], [1.0, 2.0, 3.0], _logits(3))
    writer.labels("birds", ["a", "z"], [0, 1])
    writer.labels("birds", ["a"], [1])  # a correction
    writer.close()
    log = read_feedback(tmp_path)
    (served,) = log.served
    assert served.ids == ("a", "b", "c")
    assert served.labels.tolist() == [1, 1, -1]
    np.testing.assert_array_equal(served.logits, _logits(3))
    assert served.times.tolist() == [1.0, 2.0, 3.0]
    assert log.labels_without_prediction == ("z",)
    assert log.damaged_lines == log.repeated_ids == 0
    assert served.predictions().class_names == ("auk", "crane")


def test_latencies_are_kept_by_row_and_unknown_in_logs_of_before(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(MODEL, ["a", "b"], [1.0, 2.0], _logits(2), latency_ms=[0.5, None])
    writer.predictions(
        MODEL, ["a", "c"], [3.0, 4.0], _logits(2), latency_ms=[9.0, 12.25]
    )  # "a" again: the first counts
    writer.predictions(MODEL, ["d"], [5.0], _logits(1))  # as logs were before latencies
    writer.close()
    (served,) = read_feedback(tmp_path).served
    assert served.ids == ("a", "b", "c", "d")
    np.testing.assert_array_equal(served.latency_ms, np.array([0.5, np.nan, 12.25, np.nan], np.float32))


def test_a_repeated_id_counts_once(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    for seed in (1, 2):
        writer.predictions(MODEL, ["a"], [0.0], _logits(1, seed))
    writer.close()
    log = read_feedback(tmp_path)
    assert log.repeated_ids == 1
    np.testing.assert_array_equal(log.served[0].logits, _logits(1, 1))


def test_a_line_that_was_cut_off_is_skipped_and_never_continued(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(MODEL, ["a"], [0.0], _logits(1))
    writer.predictions(MODEL, ["b"], [0.0], _logits(1))
    writer.close()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    again = FeedbackWriter(tmp_path)
    again.predictions(MODEL, ["c"], [0.0], _logits(1))
    again.close()
    log = read_feedback(tmp_path)
    assert log.damaged_lines == 1
    assert log.served[0].ids == ("a", "c")


def test_segments_rotate_and_the_oldest_go(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path, segment_bytes=2000, keep_bytes=6000)
    for n in range(100):
        writer.predictions(MODEL, [f"row-{n}"], [float(n)], _logits(1, n))
    writer.close()
    assert 3 <= len(segments(tmp_path)) <= 6
    ids = read_feedback(tmp_path).served[0].ids
    assert ids[-1] == "row-99"
    assert ids == tuple(f"row-{n}" for n in range(100 - len(ids), 100))  # the newest, without a gap


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.feedback.jsonl").write_text(json.dumps({"record": "segment", "format_version": 99}) + "\n")
    with pytest.raises(FormatError, match="format 99 is newer"):
        read_feedback(tmp_path)
    with pytest.raises(DataError, match="holds no feedback log"):
        read_feedback(tmp_path / "nothing")


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_kill_9_leaves_a_readable_log_without_a_gap(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from calibrant.feedback import FeedbackWriter, Model\n"
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
