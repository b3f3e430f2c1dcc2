"""The line goes into a deployed file: the command, and the button that runs it."""

from __future__ import annotations

import shlex

import streamlit as st

from calibrant.dashboard import jobs
from calibrant.dashboard.folder.artifacts import FolderIndex, Model
from calibrant.dashboard.folder.contents import card_of
from calibrant.dashboard.folder.files import stamp
from calibrant.dashboard.numbers import deployed
from calibrant.dashboard.views.subject import Chosen
from calibrant.dashboard.widgets import elements
from calibrant.dashboard.widgets.go import go
from calibrant.dashboard.widgets.markdown_escape import plain, short

KIND = "threshold"


def render(folder_index: FolderIndex, chosen: Chosen, threshold: float) -> None:
    if not isinstance(chosen.owner, Model):
        _files_of(folder_index, chosen)
        return
    now = chosen.owner.card.abstain_below
    st.markdown(
        f"**{plain(short(chosen.owner.name, 60))}** now "
        + ("answers everything." if not now else f"hands off below {100 * now:.4g} %.")
    )
    words = ["set-threshold", chosen.owner.name, f"{threshold:.9g}"]
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(
            f"Set {_percent(threshold)} % in this file", key="set-threshold", type="primary", icon=":material/save:"
        ):
            jobs.start(
                folder_index.root,
                "Setting the threshold",
                ["set-threshold", str(chosen.owner.path), words[-1]],
                done_when=chosen.owner.path,
                about={"kind": KIND, "file": chosen.owner.name, "percent": _percent(threshold)},
            )
            st.rerun()
        with st.popover("Command", icon=":material/terminal:", type="tertiary", key="threshold-command"):
            elements.command(folder_index.root, shlex.join(["calibrant", *words]))
    mine = [s for s in jobs.states(folder_index.root) if s.job.about.get("kind") == KIND]
    st.fragment(_follow, run_every=1 if any(s.running for s in mine) else None)(folder_index)
    if said := st.session_state.pop("threshold was set", None):
        st.success(said, icon=":material/check_circle:")


def _follow(folder_index: FolderIndex) -> None:
    for state in (s for s in jobs.states(folder_index.root) if s.job.about.get("kind") == KIND):
        about = state.job.about
        if state.running:
            st.info(f"Writing for {state.seconds:.0f} s.", icon=":material/hourglass_top:")
            continue
        jobs.forget(folder_index.root, state.job.id)
        model = folder_index.model(str(about.get("file")))
        if model is not None and _threshold_of(model) == about.get("percent"):
            st.session_state["threshold was set"] = (
                f"{plain(str(about.get('file')))} hands off below {plain(str(about.get('percent')))} % from now on."
            )
            st.rerun(scope="app")
        st.error(elements.said(state.last_line.removeprefix("Error: "), 300), icon=":material/error:")


def _percent(threshold: float) -> str:
    return f"{100 * threshold:.4g}"


def _threshold_of(model: Model) -> str:
    """As the file says it now."""
    return _percent(card_of(stamp(model.path)).abstain_below or 0.0)


def _files_of(folder_index: FolderIndex, chosen: Chosen) -> None:
    """Files with the weights of this run: a threshold belongs to a file's own confidences."""
    files = [
        m
        for m in folder_index.models
        if (found := deployed.held_out(folder_index, m)) is not None and found[0] == chosen.run
    ]
    if not files:
        st.markdown("To set the line, export the run; a threshold lies in the deployed file.")
        return
    st.markdown("The line is set in a deployed file, whose confidences are its own:")
    for file in files[:3]:
        if st.button(
            f"Decide for {plain(short(file.name, 60))}", key=f"decide-{file.name}", icon=":material/arrow_forward:"
        ):
            go("decide", {"run": file.name})
