"""What an empty folder offers: the demo, made in the background or opened, and the first command."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from calibrant.dashboard import jobs, settings
from calibrant.dashboard.folder.artifacts import FolderIndex
from calibrant.dashboard.widgets import elements
from calibrant.dashboard.widgets.markdown_escape import plain


def empty(folder_index: FolderIndex) -> None:
    st.markdown(f"There are no runs below **{plain(folder_index.root.name)}** yet.")
    if settings.given().demo is not None and not settings.demo_is_open():
        st.button(
            "Open the demo that was made here",
            icon=":material/folder_open:",
            type="primary",
            key="open-demo",
            on_click=settings.open_demo,
            args=(True,),
        )
    st.markdown("To see everything at once on images that need no download, make the demo; it takes a few minutes:")
    if not demo_states(folder_index.root):
        _make_demo(folder_index.root)
    st.markdown("Or train on your own images, a folder for each class:")
    elements.command(folder_index.root, "calibrant train --data images --out first")
    st.button("Look again", icon=":material/refresh:", key="again")


def demo_states(root: Path) -> list[jobs.State]:
    return [s for s in jobs.states(root) if s.job.about.get("kind") == "demo"]


def _make_demo(root: Path) -> None:
    st.code("calibrant demo", language="bash")
    if st.button("Make the demo here", icon=":material/play_arrow:", key="make-demo"):
        out = root / "calibrant-demo"
        for state in demo_states(root):
            jobs.forget(root, state.job.id)
        jobs.start(root, "demo", ["demo", "--out", str(out)], done_when=out / "report.html", about={"kind": "demo"})
        st.rerun()


def follow_demo(root: Path) -> None:
    """`calibrant demo` below the folder, while it runs."""
    state = next(iter(demo_states(root)), None)
    if state is None:
        return
    if state.running:
        lines = dict.fromkeys((state.step, state.last_line))  # its own step, and the progress within it
        text = f"Making the demo for {state.seconds:.0f} s. {elements.said(' '.join(lines), 200)}"
        st.info(text, icon=":material/hourglass_top:")
        if st.button("Cancel", icon=":material/stop:", key="cancel-demo"):
            jobs.cancel(root, state.job.id)
            jobs.forget(root, state.job.id)
            st.rerun()
        return
    if state.succeeded:
        jobs.forget(root, state.job.id)
        st.rerun()
    st.error(f"The demo stopped: {elements.said(state.last_line, 300)}", icon=":material/error:")
    if st.button("Dismiss", key="forget-demo"):
        jobs.forget(root, state.job.id)
        st.rerun()
