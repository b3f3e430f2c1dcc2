"""Overview: a card for each thing that can be deployed, with its verdict; a table, a scatter, a comparison."""

from __future__ import annotations

import streamlit as st

from calibrant.dashboard import settings
from calibrant.dashboard.folder.artifacts import FolderIndex
from calibrant.dashboard.numbers import subjects
from calibrant.dashboard.views.overview import cards, comparison, first_steps, label_cards, lines
from calibrant.dashboard.views.overview.lines import Line
from calibrant.dashboard.widgets import controls, elements, upload
from calibrant.dashboard.widgets.markdown_escape import plain

_SHOWN = {"cards": "cards", "table": "table", "scatter": "scatter"}
_SORTED = {"verdict": "verdict", "name": "name", "ece": "ECE", "accuracy": "accuracy", "nll": "NLL", "date": "newest"}
_GROUPED = ("none", "verdict", "model", "loss", "seed", "date", "state")


def render(folder_index: FolderIndex) -> None:
    elements.title("Overview")
    if settings.demo_is_open():
        st.button(
            "Back to your own runs",
            icon=":material/arrow_back:",
            key="close-demo",
            on_click=settings.open_demo,
            args=(False,),
        )
    if first_steps.demo_states(folder_index.root):
        st.fragment(first_steps.follow_demo, run_every=1)(folder_index.root)
    if not folder_index.runs and not folder_index.models:
        elements.troubles(folder_index.troubles)
        first_steps.empty(folder_index)
        upload.offer(folder_index.root)
        return
    troubles = list(folder_index.troubles)
    found = lines.measured(subjects.of_index(folder_index), troubles)
    elements.troubles(troubles)
    st.markdown(
        f"{_many(len(folder_index.runs), 'run')}, {_many(len(folder_index.models), 'deployed file')} and "
        f"{_many(len(folder_index.calibrators), 'calibrator')} below **{plain(folder_index.root.name)}**."
    )
    how, grouped, shown = _controls(found)
    waiting: list[cards.Waiting] = []
    if not shown:
        if found:
            st.info("Nothing here has these words.", icon=":material/info:")
    elif how == "cards":
        waiting = cards.render(shown, grouped)
    elif how == "table":
        lines.table(shown, grouped)
    else:
        lines.scatter(shown)
    of_labels = label_cards.render(folder_index)
    comparison.render(folder_index, [line for line in found if line.summary is not None])
    upload.offer(folder_index.root)
    label_cards.measure(of_labels)
    cards.judge(waiting, shown)


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _controls(found: list[Line]) -> tuple[str, str, list[Line]]:
    """How it is shown, grouped by what, and the lines that are asked for, in order."""
    first, second, third, fourth = st.columns([4, 3, 3, 3])
    with fourth:
        how = controls.choose_one_of_few("Show as", list(_SHOWN), key="as", labels=_SHOWN)
    with first:
        words = controls.write(
            "Search", key="search", placeholder="vace resnet", help="Words of the name, model, loss, seed, date, state."
        )
    with second:
        by = controls.choose("Sort by", list(_SORTED), key="sort", labels=_SORTED, disabled=how == "scatter")
    with third:
        grouped = controls.choose("Group by", _GROUPED, key="group", disabled=how == "scatter")
    asked = words.lower().split()
    chosen = [line for line in found if all(word in line.words for word in asked)]
    return how, grouped, sorted(chosen, key=lambda line: line.place(by))
