"""Cards of independent labels: how many of them have probabilities that can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calibrant.dashboard.folder.artifacts import FolderIndex
from calibrant.dashboard.numbers import labels as measured_labels
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views import labels
from calibrant.dashboard.widgets import elements, level
from calibrant.dashboard.widgets.go import go
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError

_ABREAST = 3
Waiting = tuple[DeltaGenerator, Scored]


def render(folder_index: FolderIndex) -> list[Waiting]:
    """Draws them; returns the places of what is to be said once it is measured."""
    found = [(run, predictions) for run in folder_index.runs for predictions in run.labels]
    if not found:
        return []
    st.subheader("Independent labels")
    waiting: list[Waiting] = []
    for start in range(0, len(found), _ABREAST):
        row = zip(st.columns(_ABREAST), found[start : start + _ABREAST], strict=False)
        for column, (run, predictions) in row:
            key = f"{run.name}|{predictions.name}"
            with column, st.container(border=True, key=f"labels-{key}", height="stretch"):
                place = st.empty()
                with place.container():
                    level.badge(None)
                near = folder_index.calibrators_for(run, predictions)
                waiting.append((place, Scored.of(predictions, near[0] if near else None)))
                through = near[0].name if near else "network alone"
                st.markdown(f"**{plain(short(run.name, 60))}** · {plain(short(through, 60))}")
                st.markdown(
                    f":small[{len(predictions.source.class_names):,} labels · {predictions.rows:,} "
                    f"{plain(predictions.name)} rows]"
                )
                if st.button("Open", key=f"open-labels-{key}", icon=":material/arrow_forward:"):
                    go("reliability", {"run": run.name, "predictions": predictions.name})
    return waiting


def measure(waiting: Sequence[Waiting]) -> None:
    for place, scored in waiting:
        try:
            model = measured_labels.measured(scored)[-1]
        except CalibrantError as error:
            place.markdown(elements.said(error))
            continue
        with place.container():
            labels.say(model)
