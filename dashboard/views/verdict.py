"""The first thing a page says of a subject: can it be trusted, why not, what to do, and did it help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import streamlit as st

from calibrant.calibration.compare import Difference
from calibrant.calibration.verdict.verdict import Cause, Remedy, Verdict
from calibrant.dashboard import jobs
from calibrant.dashboard.folder.artifacts import FolderIndex, PredictionsRef, Run
from calibrant.dashboard.numbers import measures, verdicts
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.widgets import elements, level
from calibrant.dashboard.widgets.go import go
from calibrant.dashboard.widgets.markdown_escape import plain

KIND = "remedy"
NO_CALIBRATOR = "none"
_CAUSES = 2


def render(folder_index: FolderIndex, run: Run, predictions: PredictionsRef, scored: Scored) -> None:
    found = verdicts.verdict(scored)
    left, right = st.columns([6, 5])
    with left:
        _can_it_be_trusted(found)
    with right:
        _what_to_do(folder_index, run, predictions, found)
        _did_it_help(scored)
    st.fragment(_follow, run_every=1 if _mine(folder_index.root, running=True) else None)(folder_index.root)


def _can_it_be_trusted(found: Verdict) -> None:
    level.badge(found.level)
    st.markdown(f"**{plain(found.sentence)}**")
    if not found.causes:
        return
    st.markdown("**Why.** " + "  \n".join(_cause(cause) for cause in found.causes[:_CAUSES]))
    if more := found.causes[_CAUSES:]:
        with st.popover(f"{len(more)} more", type="tertiary", key="more-causes"):
            st.markdown("\n".join(f"- {_cause(cause)}" for cause in more))


def _cause(cause: Cause) -> str:
    return f"{plain(cause.text)} :gray-badge[{plain(cause.kind.replace('-', ' '))}]"


def _what_to_do(folder_index: FolderIndex, run: Run, predictions: PredictionsRef, found: Verdict) -> None:
    if not found.remedies:
        st.markdown(f"**What to do.** {plain(found.without_remedy)}")
        return
    first, *others = found.remedies
    st.markdown(f"**What to do.** {plain(first.text)}")
    _button(0, folder_index, run, predictions, first)
    if others:
        with st.popover(f"{len(others)} other way{'s' if len(others) > 1 else ''}", type="tertiary", key="other-ways"):
            for n, remedy in enumerate(others, 1):
                st.markdown(plain(remedy.text))
                _button(n, folder_index, run, predictions, remedy)


def _button(n: int, folder_index: FolderIndex, run: Run, predictions: PredictionsRef, remedy: Remedy) -> None:
    """Runs the command of the remedy, or shows what it leads to."""
    asked = verdicts.order(remedy, run, predictions)
    if remedy.kind == "leave-out":
        if st.button("Show it without", key=f"remedy-{n}", icon=":material/visibility:"):
            go("reliability", {"run": run.name, "predictions": predictions.name, "calibrator": NO_CALIBRATOR})
        return
    if asked is None:
        if remedy.command is not None:
            st.code(_from(folder_index.root, shlex.split(remedy.command)), language="bash", wrap_lines=True)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Do it", key=f"remedy-{n}", type="primary", icon=":material/build:"):
            about = {"kind": KIND, "run": run.name, "writes": asked.writes.relative_to(folder_index.root).as_posix()}
            jobs.start(folder_index.root, "Fitting a calibrator", asked.arguments, done_when=asked.writes, about=about)
            st.rerun()
        with st.popover("Command", icon=":material/terminal:", type="tertiary", key=f"remedy-command-{n}"):
            st.code(_from(folder_index.root, ["calibrant", *asked.arguments]), language="bash", wrap_lines=True)


def _from(root: Path, words: list[str]) -> str:
    """A command with paths as they read in the folder of the runs."""
    return shlex.join(re.sub(rf"(^|:){re.escape(str(root))}/", r"\1", word) for word in words)


def _did_it_help(scored: Scored) -> None:
    """Before and after the formula, on the same rows."""
    if scored.through is None:
        return
    found = measures.differences(scored.plain(), scored)
    if found is None:
        before, after = (measures.calibration_error(s, measures.DEFAULT_BINS) for s in (scored.plain(), scored))
        changed = f"ECE {elements.percent(before.value)} before, {elements.percent(after.value)} after"
        st.markdown(f"**Did it help?** {changed}; too many rows for a paired interval.")
        return
    st.markdown(f"**Did it help?** {did_it_help(found)}")


def did_it_help(found: Mapping[str, Difference]) -> str:
    """By the paired change of the NLL, a proper score; ECE and accuracy beside it."""
    nll, ece, accuracy = found["nll"], found["ece"], found["accuracy"]
    word = "It cannot be told" if not nll.clear else "Yes" if nll.difference < 0 else "No, it harms"
    return (
        f"{word}: NLL {_change(nll, 1, 4)}, ECE {_change(ece, 100, 2)} %, accuracy {_change(accuracy, 100, 2)} % "
        "(paired, 95 %)."
    )


def _change(d: Difference, scale: int, digits: int) -> str:
    span = "" if d.low is None or d.high is None else f" ({scale * d.low:+.{digits}f} to {scale * d.high:+.{digits}f})"
    return f"{scale * d.first:.{digits}f} → {scale * d.second:.{digits}f}{span}"


# ---- the remedy as a job ----


def _mine(root: Path, *, running: bool) -> list[jobs.State]:
    return [s for s in jobs.states(root) if s.job.about.get("kind") == KIND and s.running == running]


def _follow(root: Path) -> None:
    for state in _mine(root, running=True):
        st.info(f"Fitting a calibrator for {state.seconds:.0f} s.", icon=":material/hourglass_top:")
    for state in _mine(root, running=False):
        jobs.forget(root, state.job.id)
        about = state.job.about
        if state.succeeded:
            go("reliability", {"run": about.get("run"), "calibrator": about.get("writes")})
        st.error(elements.said(state.last_line.removeprefix("Error: "), 300), icon=":material/error:")
