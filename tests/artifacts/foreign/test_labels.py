"""Labels of every shape come to the same numbers; what is ambiguous is refused with the sentence that mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.artifacts.foreign.columns import text_column
from calibrant.artifacts.foreign.labels import Labelled, read_labels, several
from calibrant.errors import DataError

NAMES = ("cat", "dog", "owl")


def read(column: Any, names: tuple[str, ...] | None = NAMES, *, independent: bool = False) -> Labelled:
    return read_labels(column, rows=len(column), names=names, classes=3, independent=independent, where=Path("p.csv"))


@pytest.mark.parametrize(
    "column",
    [
        np.array([2, 0, 1]),
        np.array([2.0, 0.0, 1.0]),
        np.array([[2], [0], [1]]),
        text_column(["2", "0", "1"]),
        text_column(["owl", "cat", "dog"]),
        np.eye(3)[[2, 0, 1]],
    ],
)
def test_every_form_means_the_same(column: Any) -> None:
    numbers = read(column).numbers
    assert numbers is not None
    assert numbers.tolist() == [2, 0, 1]


def test_what_is_missing_is_unknown() -> None:
    for column in (np.array([0.0, np.nan]), np.array([0, -1]), text_column(["cat", None]), text_column(["cat", ""])):
        numbers = read(column).numbers
        assert numbers is not None
        assert numbers.tolist() == [0, -1]


def test_counting_from_one_is_refused_in_so_many_words() -> None:
    with pytest.raises(DataError, match="run from 1 to 3 and none is 0: they count from one; subtract 1"):
        read(np.array([1, 2, 3, 3]), None)


def test_numbers_as_names_are_joined_by_name() -> None:
    numbers = read(np.array([1, 2, 3, 3]), ("1", "2", "3")).numbers
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 2, 2]


def test_names_without_names_of_columns_are_refused() -> None:
    with pytest.raises(DataError, match="nothing says which column is which class.*--classes"):
        read(text_column(["cat", "dog"]), None)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(DataError, match='label "dgo" is none of the 3 classes; did you mean "dog"'):
        read(text_column(["cat", "dgo"]))


def test_a_class_may_be_called_na() -> None:
    numbers = read(text_column(["NA", "null", "NA"]), ("NA", "null", "x")).numbers
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0]


@pytest.mark.parametrize("bad", [np.array([0, 3]), np.array([0, -2]), np.array([0.5, 1.0])])
def test_numbers_that_are_no_classes_are_named(bad: Any) -> None:
    with pytest.raises(DataError, match=r"contain 3|contain -2|no whole numbers \(0\.5\)"):
        read(bad)


def test_several_labels_a_row_are_a_matrix() -> None:
    lists = np.empty(3, object)
    lists[:] = [("cat", "owl"), (), ("dog",)]
    expected = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert several(lists)
    assert several(np.array(expected))
    assert not several(np.eye(3))
    for column in (lists, np.array(expected)):
        present = read(column, independent=True).present
        assert present is not None
        assert present.tolist() == expected
    unknown = read(np.array([[1.0, np.nan, 0.0]]), independent=True).present
    assert unknown is not None
    assert unknown.tolist() == [[1, -1, 0]]


def test_minus_one_beside_one_alone_is_asked_for() -> None:
    """-1 is unknown: read so, only rows of class 1 would be judged."""
    where = Path("p.csv")
    for column in (np.array([1, -1, 1]), np.array([1.0, -1.0]), text_column(["-1", "1"])):
        with pytest.raises(DataError, match="labels are -1 and 1 and none is 0.*write 0 and 1"):
            read_labels(column, rows=len(column), names=None, classes=2, independent=False, where=where)
    with pytest.raises(DataError, match="labels are -1 and 1"):
        read(np.array([[1, -1, 1], [-1, 1, 1]]), independent=True)
    known = read_labels(np.array([1, -1, 0]), rows=3, names=None, classes=2, independent=False, where=where)
    assert known.numbers is not None
    assert known.numbers.tolist() == [1, -1, 0]
    named = read_labels(np.array([1, -1]), rows=2, names=("-1", "1"), classes=2, independent=False, where=where)
    assert named.numbers is not None
    assert named.numbers.tolist() == [1, 0]  # columns of scikit-learn's classes_
    assert read(np.array([1, -1, 1])).numbers is not None  # of three classes one may be missing


def test_false_and_true_are_two_classes() -> None:
    """pandas writes a column of truth as words into CSV, and as a type into Parquet."""
    column = text_column(["False", "True", "TRUE", None])
    found = read_labels(column, rows=4, names=None, classes=2, independent=False, where=Path("p.csv"))
    assert found.numbers is not None
    assert found.numbers.tolist() == [0, 1, 1, -1]
    with pytest.raises(DataError, match='"False"'):
        read(column, None)


def test_an_accent_may_be_a_sign_of_its_own() -> None:
    """Folders of macOS write it so, and labels come from folders."""
    names, column = ("caf\u00e9", "bar"), text_column(["cafe\u0301", "bar"])
    found = read_labels(column, rows=2, names=names, classes=2, independent=False, where=Path("p.csv"))
    assert found.numbers is not None
    assert found.numbers.tolist() == [0, 1]
