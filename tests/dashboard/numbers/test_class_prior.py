"""Class priors that numbers can be asked for under, and where they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.feedback import FeedbackWriter, Model
from calibrant.dashboard.numbers.class_prior import served_labels, weights_from
from calibrant.errors import ConfigError

NAMES = ("a", "b", "c=d")


def test_a_class_that_is_not_named_weighs_one() -> None:
    assert weights_from("b = 3, c=d=0.5", NAMES) == [1.0, 3.0, 0.5]
    assert weights_from("", NAMES) == [1.0, 1.0, 1.0]


def test_as_many_numbers_as_classes_are_their_weights_in_order() -> None:
    assert weights_from("5, 0,2.5", NAMES) == [5.0, 0.0, 2.5]


@pytest.mark.parametrize("text", ["e=1", "a=-1", "a=nan", "a=inf", "a=x", "1,2", "a", "=3"])
def test_what_is_no_weight_of_a_class_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a"):
        weights_from(text, NAMES)


def test_served_labels_are_counted_over_files_with_the_same_classes(tmp_path: Path) -> None:
    writer = FeedbackWriter(tmp_path)
    for version, names in (("1", NAMES), ("2", NAMES), ("3", ("x", "y", "z"))):
        model = Model("m", version, version * 64, names)
        ids = [f"{version}-{i}" for i in range(4)]
        writer.predictions(model, ids, [1.0, 2.0, 3.0, 4.0], np.zeros((4, 3), np.float32))
        writer.labels("m", ids[:3], [0, 0, 2])
    writer.close()
    assert served_labels(tmp_path, NAMES) == [4.0, 0.0, 2.0]
    with pytest.raises(ConfigError, match="no label"):
        served_labels(tmp_path, ("other", "names"))
