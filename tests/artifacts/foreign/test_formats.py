"""The ending picks the reader; what is not read is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.artifacts.foreign.formats import ENDINGS, read_columns
from calibrant.errors import FormatError


def test_pickles_and_unknown_endings_are_refused(tmp_path: Path) -> None:
    for name, says in (("p.pkl", "pickle, which could run code"), ("p.joblib", "pickle"), ("p.xlsx", "known are")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(FormatError, match=says):
            read_columns(tmp_path / name)


def test_no_ending_has_two_readers() -> None:
    assert len(set(ENDINGS)) == len(ENDINGS)
