"""From one page to another, with some of its controls set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calibrant.dashboard.widgets import controls

_PAGES = "pages by address"


def register(pages: Mapping[str, Any]) -> None:
    """Called at every run, before a page is drawn."""
    st.session_state[_PAGES] = dict(pages)


def go(address: str, values: Mapping[str, Any]) -> None:
    """Opens the page; each control there shows the value. Ends the run."""
    for key, value in values.items():
        controls.put(key, value)
    st.switch_page(st.session_state[_PAGES][address])
