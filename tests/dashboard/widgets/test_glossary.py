"""The short words of the pages, explained where they stand."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from calibrant.dashboard.widgets.glossary import WORDS


def test_the_words_that_the_pages_use_are_there() -> None:
    assert {"T", "NLL", "ECE", "Prior", "Rows"} <= set(WORDS)
    assert "image" in WORDS["Rows"]
