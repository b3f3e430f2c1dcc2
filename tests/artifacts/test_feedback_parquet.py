"""The table that a closed segment becomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.artifacts import feedback_parquet
from calibrant.artifacts.feedback import Model, read_feedback, segments
from calibrant.artifacts.feedback_compaction import compact
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.errors import FormatError

MODEL = Model("birds", "1", "abc", tuple("abcdefgh"))


def _table(folder: Path, kept: Kept | None = None) -> tuple[Path, np.ndarray]:
    logits = np.random.default_rng(2).normal(size=(30, 8)).astype(np.float32)
    writer = FeedbackWriter(folder, kept=kept)
    for start in range(0, 30, 10):
        ids = [f"r{k}" for k in range(start, start + 10)]
        writer.predictions(MODEL, ids, [100.0 + start] * 10, logits[start : start + 10], latency_ms=[2.5] * 10)
        writer.labels("birds", ids[:4], [1, 2, 3, 4])
    writer.close()
    compact(folder)
    (path,) = segments(folder)
    return path, logits


def test_it_is_open_to_any_reader_of_parquet(tmp_path: Path) -> None:
    path, logits = _table(tmp_path)
    rows = pq.read_table(path).to_pylist()
    answers = [row for row in rows if row["record"] == "predictions"]
    assert [row["id"] for row in answers] == [f"r{k}" for k in range(30)]
    np.testing.assert_array_equal(np.float32([row["logits"] for row in answers]), logits)
    assert {(row["time"], row["ms"], row["version"], row["sha256"]) for row in answers[:10]} == {
        (100.0, 2.5, "1", "abc")
    }
    assert [row["label"] for row in rows if row["record"] == "labels"] == [1, 2, 3, 4] * 3


def test_rows_that_were_cut_name_their_classes(tmp_path: Path) -> None:
    path, logits = _table(tmp_path, Kept(top=5))
    answers = [row for row in pq.read_table(path).to_pylist() if row["record"] == "predictions"]
    assert answers[3]["classes"] == sorted(np.argsort(-logits[3])[:5].tolist())
    np.testing.assert_array_equal(np.float32(answers[3]["logits"]), logits[3, answers[3]["classes"]])
    np.testing.assert_array_equal(read_feedback(tmp_path).served[0].logits, Kept(top=5).seen(logits))


def test_a_row_group_is_what_one_late_label_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback_parquet, "_GROUP_BYTES", 300)  # a block of ten rows is 320
    path, _ = _table(tmp_path)
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups >= 3
    lines = list(feedback_parquet.read(path))
    read = list[int]()
    real = feedback_parquet._records
    monkeypatch.setattr(feedback_parquet, "_records", lambda p, n: [read.append(n), real(p, n)][1])
    for at, record in lines[2:]:
        found = feedback_parquet.record_at(path, at)
        assert found is not None
        assert found["ids"] == record["ids"]
    assert sorted(read) == sorted(set(read))  # labels of one day do not read a group each
    assert feedback_parquet.record_at(path, lines[2][0] + 1) is None


def test_another_table_and_a_newer_one_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.feedback.parquet"
    pq.write_table(pa.table({"line": [1]}), other)
    with pytest.raises(FormatError, match="is no table of a feedback log"):
        read_feedback(tmp_path)
    header = {b"calibrant": b'{"format_version": 9, "damaged_lines": 0}'}
    pq.write_table(pa.table({"line": [1]}).replace_schema_metadata(header), other)
    with pytest.raises(FormatError, match=r"of format 9 is newer than this Calibrant reads \(1\)"):
        read_feedback(tmp_path)
    other.write_bytes(b"no table at all")
    with pytest.raises(FormatError, match="is no table of a feedback log"):
        read_feedback(tmp_path)
