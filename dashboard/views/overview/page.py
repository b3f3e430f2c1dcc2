"""Overview: a card for each thing that can be deployed, with its verdict; a table, a scatter, a comparison."""

from __future__ import annotations

import streamlit as st

from calibrant.dashboard import settings
from calibrant.dashboard.folder.artifacts import Shelf
from calibrant.dashboard.numbers import subjects
from calibrant.dashboard.views.overview import cards, comparison, first_steps, lines
from calibrant.dashboard.views.overview.lines import Line
from calibrant.dashboard.widgets import controls, elements, upload
from calibrant.dashboard.widgets.markdown_escape import plain

_SHOWN = {"cards": "cards", "table": "table", "scatter": "scatter"}
_SORTED = {"verdict": "verdict", "name": "name", "ece": "ECE", "accuracy": "accuracy", "nll": "NLL", "date": "newest"}
_GROUPED = ("none", "verdict", "model", "loss", "seed", "date", "state")


def render(shelf: Shelf) -> None:
    elements.title("Overview")
    if settings.demo_is_open():
        st.button(
            "Back to your own runs",
            icon=":material/arrow_back:",
            key="close-demo",
            on_click=settings.open_demo,
            args=(False,),
        )
    if first_steps.demo_states(shelf.root):
        st.fragment(first_steps.follow_demo, run_every=1)(shelf.root)
    if not shelf.runs and not shelf.models:
        elements.troubles(shelf.troubles)
        first_steps.empty(shelf)
        upload.offer(shelf.root)
        return
    troubles = list(shelf.troubles)
    found = lines.measured(subjects.of_shelf(shelf), troubles)
    elements.troubles(troubles)
    st.markdown(
        f"{_many(len(shelf.runs), 'run')}, {_many(len(shelf.models), 'deployed file')} and "
        f"{_many(len(shelf.calibrators), 'calibrator')} below **{plain(shelf.root.name)}**."
    )
    how, grouped, shown = _controls(found)
    waiting: list[cards.Waiting] = []
    if not shown:
        st.info("Nothing here has these words.", icon=":material/info:")
    elif how == "cards":
        waiting = cards.render(shown, grouped)
    elif how == "table":
        lines.table(shown)
    else:
        lines.scatter(shown)
    comparison.render(shelf, [line for line in found if line.summary is not None])
    upload.offer(shelf.root)
    if how == "cards":
        cards.judge(waiting, shown)


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _controls(found: list[Line]) -> tuple[str, str, list[Line]]:
    """How it is shown, grouped by what, and the lines that are asked for, in order."""
    first, second, third, fourth = st.columns([4, 3, 3, 3])
    with first:
        words = controls.write(
            "Search", key="search", placeholder="vace resnet", help="Words of the name, model, loss, seed, date, state."
        )
    with second:
        by = controls.choose("Sort by", list(_SORTED), key="sort", labels=_SORTED)
    with third:
        grouped = controls.choose("Group by", _GROUPED, key="group")
    with fourth:
        how = controls.choose_one_of_few("Show as", list(_SHOWN), key="as", labels=_SHOWN)
    asked = words.lower().split()
    chosen = [line for line in found if all(word in line.words for word in asked)]
    return how, grouped, sorted(chosen, key=lambda line: line.place(by))
