"""Python objects become numbers, text or a matrix, and a row that does not fit is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.columns import from_objects
from calibrant.errors import DataError

HERE = Path("p.jsonl")


def test_objects_find_their_type() -> None:
    assert from_objects([1, 2], name="y", where=HERE).dtype == np.int64
    assert np.isnan(from_objects([1.5, None], name="w", where=HERE)[1])
    assert from_objects(["a", None], name="id", where=HERE).tolist() == ["a", None]
    np.testing.assert_array_equal(from_objects([[1, 2], [3, 4]], name="z", where=HERE), [[1, 2], [3, 4]])
    assert from_objects([["a"], ["b", "c"]], name="labels", where=HERE).tolist() == [("a",), ("b", "c")]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1.0, 2.0], [3.0]], "has 1 values in row 2 and 2 in the first"),
        ([[1.0, 2.0], None], "empty in row 2"),
    ],
)
def test_a_row_of_another_length_is_named(rows: list[list[float] | None], says: str) -> None:
    with pytest.raises(DataError, match=says):
        from_objects(rows, name="logits", where=HERE)
