"""CSV and TSV: fields are text until they are numbers, and no word means "missing"."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.delimited import read_delimited
from calibrant.errors import DataError, FormatError


def write(folder: Path, text: str, name: str = "p.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(("name", "mark"), [("p.csv", ","), ("p.tsv", "\t"), ("p.csv", ";")])
def test_columns_find_their_types(tmp_path: Path, name: str, mark: str) -> None:
    text = "\n".join(mark.join(row) for row in (("id", "p_a", "label"), ("x 1", "0.25", "3"), ("x 2", "-1e-3", "")))
    found = read_delimited(write(tmp_path, text, name)).values
    assert found["id"].tolist() == ["x 1", "x 2"]
    assert found["p_a"].tolist() == [0.25, -0.001]
    assert found["label"][0] == 3
    assert np.isnan(found["label"][1])


def test_behind_semicolons_a_comma_may_stand_before_the_decimals(tmp_path: Path) -> None:
    """As spreadsheets write it where people count so; between commas it would be two fields."""
    (tmp_path / "p.csv").write_text("p_a;p_b;label\n0,25;-1,5e-3;ash\n1;2;elm\n;0,5;ash, old\n")
    found = read_delimited(tmp_path / "p.csv").values
    np.testing.assert_array_equal(found["p_a"], [0.25, 1.0, np.nan])
    np.testing.assert_array_equal(found["p_b"], [-0.0015, 2.0, 0.5])
    assert list(found["label"]) == ["ash", "elm", "ash, old"]


def test_classes_called_na_and_null_survive(tmp_path: Path) -> None:
    found = read_delimited(write(tmp_path, "label,s\nNA,1\nnull,2\nnan,3\n")).values
    assert found["label"].tolist() == ["NA", "null", "nan"]


def test_printed_lists_are_parsed_with_a_warning_and_shortened_ones_refused(tmp_path: Path) -> None:
    found = read_delimited(write(tmp_path, 'logits,label\n"[ 0.12 -1.5\n  2.]",0\n"[1. 2. 3.]",1\n'))
    np.testing.assert_array_equal(found.values["logits"], [[0.12, -1.5, 2.0], [1, 2, 3]])
    assert "8 digits" in found.notes[0]
    with pytest.raises(DataError, match=r"shortened to `\.\.\.`"):
        read_delimited(write(tmp_path, 'logits,label\n"[1. 2. ... 3.]",0\n'))


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="first line holds numbers.*add a header"):
        read_delimited(write(tmp_path, "0.1,0.9,1\n0.2,0.8,0\n"))


def test_columns_may_be_numbered(tmp_path: Path) -> None:
    assert list(read_delimited(write(tmp_path, "0,1\n0.1,0.9\n")).values) == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "is empty"), ("a,b\n", "holds no rows"), ("a,a\n1,2\n", 'two columns are called "a"'), ("a,b\n1\n", "table")],
)
def test_what_cannot_be_a_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises((DataError, FormatError), match=says):
        read_delimited(write(tmp_path, text))


def test_a_mark_of_byte_order_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("label,s\n1,2\n", encoding="utf-8-sig")
    assert list(read_delimited(tmp_path / "p.csv").values) == ["label", "s"]


def test_what_spreadsheets_put_above_the_names_is_no_row(tmp_path: Path) -> None:
    found = read_delimited(write(tmp_path, "sep=;\r\np_a;label\r\n0,25;1\r\n")).values
    assert found["p_a"].tolist() == [0.25]
    assert found["label"].tolist() == [1]


def test_behind_tabs_too_a_comma_may_stand_before_the_decimals(tmp_path: Path) -> None:
    assert read_delimited(write(tmp_path, "p_a\tlabel\n0,25\t1\n", "p.tsv")).values["p_a"].tolist() == [0.25]
    assert read_delimited(write(tmp_path, 'p_a,label\n"1,234",1\n')).values["p_a"].tolist() == ["1,234"]
