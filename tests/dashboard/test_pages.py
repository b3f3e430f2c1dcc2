"""The pages by address, and what becomes of an error on one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from streamlit.testing.v1 import AppTest

from calibrant.dashboard.pages import PAGES
from calibrant.dashboard.settings import Settings

FAILS = """
from calibrant.dashboard.pages import _guarded
from calibrant.errors import DataError

def broken(folder_index):
    raise ERROR

_guarded(broken)()
"""


def test_every_page_has_an_address_and_a_title_of_its_own() -> None:
    assert list(PAGES)[0] == "overview"
    titles = [title for title, _ in PAGES.values()]
    assert len(set(titles)) == len(titles) == 7


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ('DataError("is damaged", where="a.parquet", fix="write it again")', "a.parquet"),
        ('OSError(5, "Input/output error")', "A file could not be read: Input/output error"),
    ],
)
def test_what_a_file_can_cause_becomes_a_line_on_the_page(
    error: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["app.py", *Settings(tmp_path).to_arguments()])
    page = AppTest.from_string(FAILS.replace("ERROR", error)).run()
    assert [e.value for e in page.exception] == []
    assert said in page.error[0].value.replace("\\", "")


def test_a_mistake_of_ours_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["app.py", *Settings(tmp_path).to_arguments()])
    assert len(AppTest.from_string(FAILS.replace("ERROR", 'KeyError("x")')).run().exception) == 1
