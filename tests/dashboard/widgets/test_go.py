"""From page to page with controls set, whatever was chosen there before."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from streamlit.testing.v1 import AppTest

PAGE = """
import streamlit as st
from calibrant.dashboard.widgets import controls, go

st.switch_page = lambda page: st.text("to " + page)
go.register({"reliability": "there"})
if st.button("Open", key="open"):
    go.go("reliability", {"run": "ce", "after": "none"})
run = controls.choose("Run", ["ce", "arcface"], key="run", default="arcface")
after = controls.choose("After", [run + ".json", "none"], key="after", about=run)
st.text(run + " " + after)
"""


def test_each_control_shows_what_was_asked_for() -> None:
    page = AppTest.from_string(PAGE).run()
    assert page.text[-1].value == "arcface arcface.json"
    page.button(key="open").click().run()
    assert [t.value for t in page.text] == ["to there", "ce none"]
    assert len(page.warning) == 0
