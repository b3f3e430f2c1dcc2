"""What is written, and that half a file never appears."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import PredictionsWriter, read_predictions
from tests.artifacts.predictions.conftest import Some


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path, some: Some) -> None:
    def write() -> None:
        with PredictionsWriter(tmp_path / "p.parquet", some().source) as writer:
            writer.append(["a"], None, np.zeros((1, 3)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_has_no_rows_and_keeps_its_classes(tmp_path: Path, some: Some) -> None:
    with PredictionsWriter(tmp_path / "p.parquet", some().source):
        pass
    read = read_predictions(tmp_path / "p.parquet")
    assert len(read) == 0
    assert read.class_names == ("k0", "k1", "k2")


def test_batches_follow_one_another_and_a_split_may_be_one_word(tmp_path: Path, some: Some) -> None:
    with PredictionsWriter(tmp_path / "p.parquet", some().source) as writer:
        for first in (0, 2):
            ids = [f"r{first}", f"r{first + 1}"]
            writer.append(ids, np.array([1, -1]), np.full((2, 3), float(first)), split="test")
    read = read_predictions(tmp_path / "p.parquet")
    assert read.ids == ("r0", "r1", "r2", "r3")
    assert read.labels.tolist() == [1, -1, 1, -1]
    assert read.logits[:, 0].tolist() == [0, 0, 2, 2]
    assert read.split == ("test",) * 4
