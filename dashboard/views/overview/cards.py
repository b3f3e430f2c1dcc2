"""Cards: which of these can be trusted, at a glance. Verdicts are worked out while the page stands."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calibrant.calibration.verdict.verdict import Verdict
from calibrant.dashboard.numbers import verdicts
from calibrant.dashboard.views.overview.lines import Line
from calibrant.dashboard.widgets import controls, elements, level
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError

_ABREAST, _PER_PAGE = 3, 24


Waiting = tuple[DeltaGenerator, Line]


def render(lines: Sequence[Line], grouped: str) -> list[Waiting]:
    """Draws them; returns the places of the verdicts that are not known yet."""
    pages = -(-len(lines) // _PER_PAGE)
    page = 1 if pages == 1 else controls.slide("Page of cards", 1, pages, key="cards-page", default=1)
    shown = lines[(page - 1) * _PER_PAGE : page * _PER_PAGE]
    waiting: list[Waiting] = []
    if grouped == "none":
        _grid(shown, waiting)
    else:
        for name in dict.fromkeys(line.group(grouped) for line in shown):
            st.subheader(plain(name))
            _grid([line for line in shown if line.group(grouped) == name], waiting)
    return waiting


def _grid(lines: Sequence[Line], waiting: list[Waiting]) -> None:
    for start in range(0, len(lines), _ABREAST):
        for column, line in zip(st.columns(_ABREAST), lines[start : start + _ABREAST], strict=False):
            with column, st.container(border=True, key=f"card-{line.subject.key}", height="stretch"):
                _card(line, waiting)


def _card(line: Line, waiting: list[Waiting]) -> None:
    subject, s = line.subject, line.summary
    st.markdown(f"**{plain(short(subject.name, 60))}** · {plain(short(subject.formula, 60))}")
    place = st.empty()
    if s is not None and subject.scored is not None:
        known = verdicts.known(subject.scored)
        _say(place, known)
        if known is None:
            waiting.append((place, line))
    elif subject.predictions is None:
        place.badge("No predictions of its weights", icon=":material/help:", color="gray")
    if s is not None:
        last = s.ece_after or s.ece
        st.markdown(
            f"Accuracy {elements.percent(s.accuracy.value, 1)} · ECE {elements.percent(last.value, 1)}, if calibrated "
            f"{elements.percent(last.null, 1)}"
        )
    judged = "" if s is None or subject.predictions is None else f"{s.rows:,} rows of {plain(subject.predictions.name)}"
    facts = [f"{'seed ' * (name == 'seed')}{plain(short(v, 32))}" for name, v in subject.facts.items() if v]
    st.markdown(":small[" + " · ".join(filter(None, [*facts, judged])) + "]")
    if s is not None and st.button("Open", key=f"open-{subject.key}", icon=":material/arrow_forward:"):
        line.open()


def _say(place: DeltaGenerator, found: Verdict | None) -> None:
    with place.container():
        level.badge(None if found is None else found.level)
        if found is not None:
            st.markdown(plain(found.sentence))


def judge(waiting: Sequence[Waiting], lines: Sequence[Line]) -> None:
    """Those on the page first, then the others, by which the cards are then sorted."""
    seen = {id(line) for _, line in waiting}
    rest = [line for line in lines if line.level is None and line.summary is not None and id(line) not in seen]
    todo = [*waiting, *((None, line) for line in rest)]
    if not todo:
        return
    bar = st.progress(0.0) if len(todo) > 2 else None
    news = False
    for n, (place, line) in enumerate(todo):
        if bar is not None:
            bar.progress(n / len(todo), text=f"Judged {n} of {len(todo)}")
        assert line.subject.scored is not None  # only what was measured is judged
        try:
            found = verdicts.verdict(line.subject.scored)
        except CalibrantError as error:
            if place is not None:
                place.markdown(elements.said(error))
            continue
        news = True
        if place is not None:
            _say(place, found)
    if bar is not None:
        bar.empty()
    if news:  # else it would be judged again and again
        st.rerun()
