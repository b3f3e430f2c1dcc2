"""Columns of a predictions file."""

from __future__ import annotations

import numpy as np

from calibrant.artifacts.predictions.columns import fixed_list, group_column, is_group


def test_a_group_keeps_its_name_through_its_column() -> None:
    assert group_column("group") == "group"
    assert group_column("camera") == "group_camera"
    assert [is_group(c) for c in ("group", "group_camera", "groups", "label")] == [True, True, False, False]


def test_a_matrix_is_a_list_of_fixed_length_in_float32() -> None:
    column = fixed_list(np.arange(6, dtype=np.float64).reshape(3, 2))
    assert str(column.type) == "fixed_size_list<item: float>[2]"
    assert column.to_pylist() == [[0, 1], [2, 3], [4, 5]]
