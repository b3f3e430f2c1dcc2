"""A verdict's level as people see it: a shape, a colour and a word, so that none of the three is needed alone."""

from __future__ import annotations

from typing import Literal

import streamlit as st

from calibrant.calibration.verdict.verdict import LEVELS, WORDS, Level

Colour = Literal["green", "orange", "red", "gray"]
SHAPES: dict[Level, tuple[str, Colour]] = {
    "trusted": (":material/check_circle:", "green"), "care": (":material/warning:", "orange"),
    "not-trusted": (":material/dangerous:", "red"), "unknown": (":material/help:", "gray"),
}  # fmt: skip


def badge(level: Level | None) -> None:
    """None: it is still being worked out."""
    if level is None:
        st.badge("Judging …", icon=":material/hourglass_top:", color="gray")
        return
    icon, colour = SHAPES[level]
    st.badge(WORDS[level], icon=icon, color=colour)


def rank(level: Level | None) -> int:
    """The worst first; what is not known yet last."""
    return len(LEVELS) if level is None else LEVELS.index(level)
