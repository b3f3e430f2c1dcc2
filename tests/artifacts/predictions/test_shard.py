"""One Parquet file: whether it is ours, and what of it cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, is_own, read_predictions
from calibrant.artifacts.predictions.shard import describe
from calibrant.errors import DataError
from tests.artifacts.predictions.conftest import Some


def test_a_label_beyond_the_classes_is_named(tmp_path: Path, some: Some) -> None:
    good = some()
    Predictions(good.ids, np.array([0, 1, 2, 12, 1]), good.logits, good.source).write(tmp_path / "p.parquet")
    with pytest.raises(DataError, match="labels contain 12 but there are 3 classes"):
        read_predictions(tmp_path / "p.parquet")


def test_ours_are_told_from_other_files_and_other_parquet(tmp_path: Path, some: Some) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    some().write(tmp_path / "ours.parquet")
    pq.write_table(pa.table({"logits": [1.0]}), tmp_path / "theirs.parquet")
    (tmp_path / "ours.npz").write_bytes((tmp_path / "ours.parquet").read_bytes())
    assert [is_own(tmp_path / n) for n in ("ours.parquet", "theirs.parquet", "ours.npz")] == [True, False, False]


def test_a_shard_says_its_rows_and_its_source_without_being_read(tmp_path: Path, some: Some) -> None:
    some(7).write(tmp_path / "p.parquet")
    assert describe(tmp_path / "p.parquet") == (some().source, 7)
