"""A control's value stands in the page's address, and comes from it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install '.[dashboard]'")

from streamlit.testing.v1 import AppTest

PAGE = """
import streamlit as st
from calibrant.dashboard.widgets import controls

name = controls.choose("Run", ["oak", "elm"], key="run", default="elm")
bins = controls.slide("Bins", 1, 100, key="bins", default=15)
heat = controls.slide_decimal("T", 0.2, 5.0, step=0.1, key="t", default=9.0)
several = controls.choose_several("Runs", ["a", "b", "c"], key="several", default=["a"], most=2)
on = controls.switch("Keep", key="keep")
st.text(repr((name, bins, heat, several, on)))
"""


def drawn(**address: str) -> Any:
    page = AppTest.from_string(PAGE)
    for key, value in address.items():
        page.query_params[key] = value
    page.run()
    assert [e.value for e in page.exception] == []
    return page


def address(page: Any, key: str) -> str:
    """Older versions of Streamlit give a list of one."""
    value = page.query_params[key]
    return str(value[0] if isinstance(value, list) else value)


def test_without_an_address_the_defaults_are_shown_and_written_into_it() -> None:
    page = drawn()
    assert page.text[0].value == "('elm', 15, 5.0, ['a'], False)"  # a default outside of the range is moved into it
    assert {k: address(page, k) for k in ("run", "bins", "t", "several", "keep")} == {
        "run": "elm", "bins": "15", "t": "5", "several": "a", "keep": "off"
    }  # fmt: skip


def test_an_address_is_taken_over() -> None:
    page = drawn(run="oak", bins="7", t="1.5", several="b|c", keep="on")
    assert page.text[0].value == "('oak', 7, 1.5, ['b', 'c'], True)"
    assert len(page.warning) == 0


@pytest.mark.parametrize("asked", [{"run": "ash"}, {"bins": "0"}, {"bins": "101"}, {"t": "hot"}, {"keep": "yes"}])
def test_what_a_link_asks_for_and_is_not_here_is_said(asked: dict[str, str]) -> None:
    page = drawn(**asked)
    assert page.text[0].value == "('elm', 15, 5.0, ['a'], False)"
    assert "which is not here" in page.warning[0].value


def test_more_than_the_most_are_cut_and_unknown_ones_dropped() -> None:
    assert "['a', 'b']" in drawn(several="a|x|b|c").text[0].value


TWO = """
import streamlit as st
from calibrant.dashboard.widgets import controls

run = controls.choose("Run", ["ce", "arcface"], key="run")
options = {"ce": ["ce.json", "none"], "arcface": ["arc.json", "none"]}[run]
st.text(controls.choose("After", options, key="after", about=run))
"""


def test_what_depends_on_another_control_comes_back_with_it_and_warns_of_nothing() -> None:
    page = AppTest.from_string(TWO).run()
    shown = [page.text[0].value]
    for run in ("arcface", "ce"):
        page.selectbox(key="run").set_value(run).run()
        shown.append(page.text[0].value)
        # The browser asks once more before it has learned the new address.
        page.query_params["after"] = shown[-2]
        page.run()
        shown[-1] = page.text[0].value
        assert len(page.warning) == 0
    assert shown == ["ce.json", "arc.json", "ce.json"]
    page.selectbox(key="after").set_value("none").run()
    for run in ("arcface", "ce"):
        page.selectbox(key="run").set_value(run).run()
    assert page.text[0].value == "none"
    assert len(page.warning) == 0


def test_a_moved_control_changes_the_address() -> None:
    page = drawn(run="oak")
    page.selectbox(key="run").set_value("elm").run()
    assert address(page, "run") == "elm"
    assert page.text[0].value.startswith("('elm'")
