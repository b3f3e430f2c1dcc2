"""Numbers and troubles as they stand on a page."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from streamlit.testing.v1 import AppTest

from calibrant.dashboard.settings import Settings
from calibrant.dashboard.widgets.elements import count, percent, said
from calibrant.errors import DataError

TROUBLES = """
from calibrant.dashboard.folder.files import Trouble
from calibrant.dashboard.settings import Settings
from calibrant.dashboard.widgets.elements import troubles

troubles([Trouble(f"file{n}", "is damaged", "delete it" if n == 0 else "") for n in range(NUMBER)])
"""


def test_a_share_is_written_in_percent_and_never_as_minus_nothing() -> None:
    assert [percent(v) for v in (0.12345, 1.0, 0.0, -0.00001, None)] == ["12.35 %", "100.00 %", "0.00 %", "0.00 %", "–"]
    assert percent(0.5, 1) == "50.0 %"
    assert count(1234567) == "1,234,567"


def test_a_message_says_a_file_as_it_is_called_below_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["app.py", *Settings(tmp_path).to_arguments()])
    assert said(DataError("is empty", where=tmp_path / "a" / "b.json")) == r"a\/b\.json\: is empty"


def test_three_troubles_are_shown_and_the_others_are_in_a_fold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["app.py", *Settings(tmp_path).to_arguments()])
    page = AppTest.from_string(TROUBLES.replace("NUMBER", "5")).run()
    assert [w.value for w in page.warning] == [
        "**file0** is damaged. Delete it.", "**file1** is damaged.", "**file2** is damaged."
    ]  # fmt: skip
    assert page.expander[0].label == "2 more files could not be used"
    assert [m.value for m in page.expander[0].markdown] == ["**file3** is damaged.", "**file4** is damaged."]
    assert len(AppTest.from_string(TROUBLES.replace("NUMBER", "3")).run().expander) == 0
