"""A file, or a folder of shards, gives back what was written and is refused in one line where it is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_writer import FeedbackWriter
from calibrant.artifacts.predictions import Predictions, PredictionsFile, read_predictions
from calibrant.artifacts.predictions.file import shards_of
from calibrant.errors import CalibrantError, DataError
from tests.artifacts.predictions.conftest import Some


def test_a_file_gives_back_what_was_written(tmp_path: Path, some: Some) -> None:
    before = some(features=True)
    before.write(tmp_path / "p.parquet")
    after = read_predictions(tmp_path / "p.parquet", features=True)
    assert after.ids == before.ids
    assert after.split == before.split
    assert after.source == before.source
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.logits, before.logits)
    assert after.features is not None
    np.testing.assert_array_equal(after.features, before.features)
    assert read_predictions(tmp_path / "p.parquet").features is None


def test_shards_in_a_folder_are_one_table_in_order_of_name(tmp_path: Path, some: Some) -> None:
    first, second = some(seed=1), some(seed=2)
    second.write(tmp_path / "part-1.parquet")
    first.write(tmp_path / "part-0.parquet")
    file = PredictionsFile.open(tmp_path)
    assert file.rows == 10
    np.testing.assert_array_equal(file.read().logits, np.concatenate([first.logits, second.logits]))
    sizes = [len(batch) for batch in file.batches(2)]
    assert sum(sizes) == 10
    assert max(sizes) <= 2


def test_shards_of_another_model_are_refused(tmp_path: Path, some: Some) -> None:
    some().write(tmp_path / "a.parquet")
    some(classes=4).write(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: was written for another model"):
        PredictionsFile.open(tmp_path)


def test_foreign_files_are_refused_in_one_line(tmp_path: Path, some: Some) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "text.parquet").write_text("hello")
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "other.parquet")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    some().write(tmp_path / "cut.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "cut.parquet").read_bytes()[:200])
    for name in ("text.parquet", "other.parquet", "other.npz", "cut.parquet", "missing.parquet"):
        with pytest.raises(CalibrantError, match=name) as caught:
            read_predictions(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_the_hash_follows_the_content_and_not_the_name(tmp_path: Path, some: Some) -> None:
    some().write(tmp_path / "a.parquet")
    some().write(tmp_path / "b.parquet")
    some(seed=9).write(tmp_path / "c.parquet")
    a, b, c = (PredictionsFile.open(tmp_path / f"{n}.parquet").sha256() for n in "abc")
    assert a == b
    assert a != c


def test_probabilities_in_the_place_of_logits_are_refused_unless_they_are_said_to_be_some(
    tmp_path: Path, some: Some
) -> None:
    good = some(3)
    p = np.array([[0.5, 0.25, 0.25], [0, 1, 0], [0.1, 0.2, 0.7]], np.float32)
    Predictions(good.ids, good.labels, p, good.source).write(tmp_path / "p.parquet")
    with pytest.raises(DataError, match="holds probabilities, not logits"):
        read_predictions(tmp_path / "p.parquet")
    logits = PredictionsFile.open(tmp_path / "p.parquet", kind="probabilities").read().logits
    assert np.exp(logits[0]).tolist() == pytest.approx([0.5, 0.25, 0.25])


def test_the_shards_of_a_folder_are_its_parquet_files_and_those_of_a_file_are_itself(
    tmp_path: Path, some: Some
) -> None:
    for name in ("b.parquet", "a.parquet", "notes.txt"):
        (tmp_path / name).touch()
    assert [p.name for p in shards_of(tmp_path)] == ["a.parquet", "b.parquet"]
    assert shards_of(tmp_path / "notes.txt") == (tmp_path / "notes.txt",)


def test_a_feedback_log_is_the_answers_of_the_file_with_most_labels(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    z = np.array([[2.0, 0.0], [0.0, 1.0]], np.float32)
    writer.predictions(Model("birds", "1", "old", ("auk", "crane")), ["a", "b"], [1.0, 2.0], z)
    writer.predictions(Model("birds", "2", "new", ("auk", "crane")), ["c", "d"], [3.0, 4.0], -z)
    writer.labels("birds", ["d"], [0])
    writer.close()
    file = PredictionsFile.open(tmp_path)
    assert file.notes == (
        "the answers of birds version 2 as served, calibrator and prior included; 1 other deployed files in this "
        "log are left out",
    )
    np.testing.assert_array_equal(file.read().logits, -z)
    assert file.read().labels.tolist() == [-1, 0]
    assert file.source.model["applied"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no feedback log"):
        PredictionsFile.open(tmp_path / "empty")


def test_a_deployed_file_says_how_its_predictions_are_made(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"x")
    with pytest.raises(DataError, match="calibrant predict m.onnx --data IMAGES"):
        PredictionsFile.open(tmp_path / "m.onnx")
