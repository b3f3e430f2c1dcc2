"""Class names of a file, one a line or JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.artifacts.class_names import read_class_names, read_names_or_table
from calibrant.errors import DataError


def test_lines_and_lists_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("ash\n elm \n\noak\n", encoding="utf-8-sig")
    (tmp_path / "n.json").write_text('["ash", "elm", "oak"]')
    assert read_class_names(tmp_path / "n.txt") == read_class_names(tmp_path / "n.json") == ("ash", "elm", "oak")


def test_a_table_renames_and_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text('{"ash": "Esche"}')
    assert read_names_or_table(tmp_path / "n.json") == {"ash": "Esche"}
    with pytest.raises(DataError, match="expected a list"):
        read_class_names(tmp_path / "n.json")


@pytest.mark.parametrize("text", ["3", "{", '["ash", "ash"]'])
def test_what_is_no_list_of_names_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "n.json").write_text(text)
    with pytest.raises(DataError, match="n.json"):
        read_class_names(tmp_path / "n.json")
