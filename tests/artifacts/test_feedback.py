from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model, read_feedback, segments
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.errors import DataError, FormatError

_GMTIME = time.gmtime
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


def test_predictions_of_a_model_that_is_not_described_are_counted_not_fatal(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(MODEL, ["a"], [1.0], _logits(1))
    writer.close()
    (path,) = segments(tmp_path)
    path.write_bytes(
        path.read_bytes() + b'{"record":"predictions","sha256":"other","time":[1],"ids":["z"],"logits":"AAAA"}\n'
    )
    log = read_feedback(tmp_path)
    assert [s.ids for s in log.served] == [("a",)]
    assert log.damaged_lines == 1


def test_a_repeated_id_counts_once(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    for seed in (1, 2):
        writer.predictions(MODEL, ["a"], [0.0], _logits(1, seed))
    writer.close()
    log = read_feedback(tmp_path)
    assert log.repeated_ids == 1
    np.testing.assert_array_equal(log.served[0].logits, _logits(1, 1))


def test_a_repeated_answer_is_traffic_in_its_place(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    writer.predictions(MODEL, ["a", "b", "a"], [1.0, 2.0, 2.0], np.float32([[1, 0], [2, 0], [3, 0]]))
    writer.predictions(MODEL, ["b", "c"], [2.0, 4.0], np.float32([[4, 0], [5, 0]]))
    writer.labels("birds", ["b"], [1])
    writer.close()
    (served,) = read_feedback(tmp_path).served
    times, logits = served.traffic
    assert times.tolist() == [1, 2, 2, 2, 4]
    assert logits[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert (served.ids, served.labels.tolist()) == (("a", "b", "c"), [-1, 1, -1])


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


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.feedback.jsonl").write_text(json.dumps({"record": "segment", "format_version": 99}) + "\n")
    with pytest.raises(FormatError, match="format 99 is newer"):
        read_feedback(tmp_path)
    with pytest.raises(DataError, match="holds no feedback log"):
        read_feedback(tmp_path / "nothing")
