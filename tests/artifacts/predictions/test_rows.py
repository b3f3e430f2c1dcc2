"""Rows in memory: which are labelled, and several parts as one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.artifacts.predictions.rows import concatenated
from tests.artifacts.predictions.conftest import Some


def test_an_unknown_label_is_null_in_the_file_and_left_out_of_labelled(tmp_path: Path, some: Some) -> None:
    import pyarrow.parquet as pq

    some().write(tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["label"].null_count == 1
    assert len(read_predictions(tmp_path / "p.parquet").labelled()) == 4


def test_rows_are_taken_in_the_order_that_was_asked_for(some: Some) -> None:
    whole = some(features=True)
    part = whole.rows(np.array([3, 1]))
    assert part.ids == ("row/3", "row/1")
    assert part.labels.tolist() == whole.labels[[3, 1]].tolist()
    np.testing.assert_array_equal(part.logits, whole.logits[[3, 1]])
    assert part.features is not None
    assert whole.features is not None
    np.testing.assert_array_equal(part.features, whole.features[[3, 1]])


def test_parts_follow_one_another_without_what_only_some_have(some: Some) -> None:
    first, second = some(seed=1, features=True), some(seed=2)
    both = concatenated([first, second], first.source)
    assert both.ids == first.ids + second.ids
    np.testing.assert_array_equal(both.logits, np.concatenate([first.logits, second.logits]))
    assert both.features is None
    assert both.split == ("val",) * 10


def test_no_part_is_no_row_of_the_same_classes(some: Some) -> None:
    assert concatenated([], some().source).logits.shape == (0, 3)


def test_a_row_without_a_class_for_each_logit_is_none(some: Some) -> None:
    good = some()
    with pytest.raises(ValueError, match="2 logits a row but 3 class names"):
        Predictions(good.ids, good.labels, good.logits[:, :2], good.source)
