"""Controls whose values stand in the page's address, so that a copied link shows the same view.

Every value is written out, defaults too: a link must not change its meaning when a run is added or a default changes.
A value also stays when the reader goes to another page and comes back. Streamlit's own binding drops defaults and
silently ignores what it cannot place; here the page says what a link named and could not be found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import streamlit as st

from calibrant.dashboard.widgets.markdown_escape import plain, short

_KEPT, _LINK, _LEFT, _ABOUT = "kept:", "link:", "left:", "about:"
# A browser that is told a new address needs a moment; until then its next request still carries the old one.
_ADDRESS_SECONDS = 5.0


def choose(
    label: str,
    options: Sequence[str],
    *,
    key: str,
    default: str | None = None,
    labels: dict[str, str] | None = None,
    help: str | None = None,
    disabled: bool = False,
    about: str = "",
) -> str:
    """One of the options, in a select box. Long or awkward names are data, not Markdown, here."""
    first = default if default in options else options[0]
    _place(key, lambda text: text if text in options else None, first, options.__contains__, about)
    st.selectbox(label, options, key=key, format_func=lambda o: (labels or {}).get(o, o), help=help, disabled=disabled)
    return str(_publish(key, str))


def choose_one_of_few(
    label: str,
    options: Sequence[str],
    *,
    key: str,
    labels: dict[str, str] | None = None,
    help: str | None = None,
    about: str = "",
) -> str:
    """The same as a row of buttons; the labels are ours, not a file's."""
    _place(key, lambda text: text if text in options else None, options[0], options.__contains__, about)
    st.segmented_control(
        label, options, key=key, format_func=lambda o: (labels or {}).get(o, o), help=help, required=True
    )
    return str(_publish(key, str))


def choose_several(
    label: str,
    options: Sequence[str],
    *,
    key: str,
    default: Sequence[str],
    most: int,
    help: str | None = None,
    about: str = "",
) -> list[str]:
    def read(text: str) -> list[str] | None:
        names = [n for n in text.split("|") if n in options][:most]
        return names or None

    _place(key, read, list(default), lambda value: bool(value) and all(v in options for v in value), about)
    st.multiselect(label, options, key=key, max_selections=most, help=help, placeholder="Choose")
    return list(_publish(key, "|".join))


def slide(label: str, low: int, high: int, *, key: str, default: int, help: str | None = None, about: str = "") -> int:
    def read(text: str) -> int | None:
        return int(text) if text.isascii() and text.isdigit() and low <= int(text) <= high else None

    _place(key, read, default, lambda value: low <= value <= high, about)
    st.slider(label, low, high, key=key, help=help)
    return int(_publish(key, str))


def slide_decimal(
    label: str,
    low: float,
    high: float,
    *,
    step: float,
    key: str,
    default: float,
    help: str | None = None,
    about: str = "",
    form: str | None = None,
) -> float:
    read = partial(_number_of, low=low, high=high)
    _place(key, read, min(high, max(low, default)), lambda value: low <= value <= high, about)
    st.slider(label, low, high, step=step, key=key, help=help, format=form)
    return float(_publish(key, lambda value: f"{value:g}"))


def number(
    label: str, low: float, high: float, *, step: float, key: str, default: float, help: str | None = None
) -> float:
    """A number that is typed."""
    read = partial(_number_of, low=low, high=high)
    _place(key, read, default, lambda value: isinstance(value, float) and low <= value <= high)
    st.number_input(label, low, high, step=step, key=key, help=help, format="%g")
    return float(_publish(key, lambda value: f"{value:g}"))


def _number_of(text: str, *, low: float, high: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if low <= value <= high else None


def switch(label: str, *, key: str, default: bool = False, help: str | None = None, disabled: bool = False) -> bool:
    _place(key, {"on": True, "off": False}.get, default, lambda value: True)
    st.toggle(label, key=key, help=help, disabled=disabled)
    return bool(_publish(key, lambda value: "on" if value else "off"))


def write(label: str, *, key: str, placeholder: str, help: str | None = None) -> str:
    """A line of text, at most 2,000 characters."""
    _place(key, lambda text: text[:2000], "", lambda value: isinstance(value, str))
    st.text_input(label, key=key, help=help, placeholder=placeholder, max_chars=2000)
    return str(_publish(key, str))


def put(key: str, value: Any) -> None:
    """The control shows this when it is drawn next, whatever it remembers of other visits."""
    asked = st.query_params.get(key)
    for prefix in (_LINK, _LEFT, _ABOUT):
        st.session_state.pop(prefix + key, None)
    if asked is not None:
        _leave(key, asked)
        st.query_params.pop(key, None)
    st.session_state[key] = value


def keep(key: str, text: str | None) -> None:
    """Puts something that is not a control's value into the address, or takes it out."""
    if text is None:
        st.query_params.pop(key, None)
    elif st.query_params.get(key) != text:
        st.query_params[key] = text


def _place(key: str, read: Callable[[str], Any], default: Any, valid: Callable[[Any], bool], about: str = "") -> None:
    """Decides the value before the control is drawn: the address if it changed, else what is, was, or should be.

    When what the control is about (`about`) is another than before, its value there, or its default, is shown: what was
    chosen for the other one means nothing here, and saying that it is missing would be wrong.
    """
    state, asked = st.session_state, st.query_params.get(key)
    before = state.get(_ABOUT + key)
    state[_ABOUT + key] = about
    if before is not None and before != about:
        if (shown := state.pop(_LINK + key, None)) is not None:
            _leave(key, shown)
        kept = state.get(_kept_as(key))
        state[key] = kept if kept is not None and valid(kept) else default
        return
    if asked is not None and asked != state.get(_LINK + key) and not _just_left(key, asked):
        value = read(asked)
        if value is not None:
            state[key] = value
            return
        st.warning(
            f"The link asks for {plain(key)} = {plain(short(asked, 60))}, which is not here. Showing "
            f"{plain(_shown(default))} instead.",
            icon=":material/link_off:",
        )
    if key in state and valid(state[key]):
        return
    if key in state and not isinstance(state[key], list):
        st.warning(
            f"{plain(short(str(state[key]), 60))} is no longer here. Showing {plain(_shown(default))} instead.",
            icon=":material/link_off:",
        )
    kept = state.get(_kept_as(key))
    state[key] = kept if kept is not None and valid(kept) else default


def _kept_as(key: str) -> str:
    return f"{_KEPT}{key}:{st.session_state.get(_ABOUT + key, '')}"


def _leave(key: str, text: str) -> None:
    """The browser may ask once more with this value in the address."""
    st.session_state.setdefault(_LEFT + key, {})[text] = time.monotonic()


def _just_left(key: str, asked: str) -> bool:
    """Whether the address names a value that this control had a moment ago: two quick keys on a slider do that."""
    left = st.session_state.get(_LEFT + key, {}).get(asked)
    return left is not None and time.monotonic() - left < _ADDRESS_SECONDS


def _publish(key: str, text: Callable[[Any], str]) -> Any:
    value = st.session_state[key]
    st.session_state[_kept_as(key)] = value
    shown = text(value)
    before = st.session_state.get(_LINK + key)
    if before is not None and before != shown:
        _leave(key, before)
    st.session_state[_LINK + key] = shown
    keep(key, shown)
    return value


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
