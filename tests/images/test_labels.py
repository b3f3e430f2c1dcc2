"""Words of data files: classes in order, and splits under their usual names."""

from __future__ import annotations

import pytest

from calibrant.images.labels import class_order, split_name, split_of_file


def test_numbers_are_ordered_as_numbers_and_anything_else_as_text() -> None:
    assert class_order(["10", "9", "9", "1"]) == ("1", "9", "10")
    assert class_order(["10", "9", "a"]) == ("10", "9", "a")


@pytest.mark.parametrize(
    ("word", "split"),
    [("training", "train"), (" Valid", "val"), ("dev", "val"), ("testing", "test"), ("Holdout", "holdout")],
)
def test_splits_have_their_usual_names(word: str, split: str) -> None:
    assert split_name(word) == split


@pytest.mark.parametrize(
    ("name", "also", "split"),
    [
        ("train-00000-of-00004.parquet", None, "train"), ("validation-0.tar", None, "val"),
        ("device-0.tar", None, "all"),
        ("ood-0.tar", None, "all"), ("ood-0.tar", "ood", "ood"), ("test-0.tar", "testing", "test"),
        ("dev-1.tar", "dev", "val"),
    ],
)  # fmt: skip
def test_a_shard_belongs_to_the_split_that_its_name_begins_with(name: str, also: str | None, split: str) -> None:
    assert split_of_file(name, also) == split
