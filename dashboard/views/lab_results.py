"""What the Laboratory's heads came to: those that train, those that failed, the table, and keeping one as a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import metric
from calibrant.dashboard import jobs, settings
from calibrant.dashboard.jobs import State
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.errors import CalibrantError

KIND = "head"
_PROGRESS = re.compile(r"([\d,]+) of ([\d,]+)")  # as calibrant.progress writes it
_METRICS = tuple(map(metric, ("macro_f1", "balanced_accuracy", "accuracy", "ece", "nll")))
_PERCENT = {
    **{m.key: m.title() for m in _METRICS[:3]},
    "head_accuracy": "Head (%)", "medium_accuracy": "Medium (%)", "tail_accuracy": "Tail (%)",
    "ece": metric("ece").title(),
}  # fmt: skip
_HELP = {
    **{m.title(): m.help for m in _METRICS},
    "Head (%)": "Mean recall of the third of the classes with the most training images",
    "Medium (%)": "Mean recall of the middle third",
    "Tail (%)": "Mean recall of the third with the fewest",
}


def mine(root: Path, features: str) -> list[State]:
    """Jobs of this cache, the oldest first."""
    found = [
        s for s in jobs.states(root) if s.job.about.get("kind") == KIND and s.job.about.get("features") == features
    ]
    return found[::-1]


def render(features: str) -> None:
    root = settings.current().root
    states = _without_replaced(root, mine(root, features))
    _running(root, [s for s in states if s.running])
    _failed(root, [s for s in states if not s.running and not s.succeeded])
    done = [s for s in states if s.succeeded]
    if not done:
        st.markdown("Train one head with all switches off: it is the baseline that the others are set against.")
    else:
        _table(done)
        _keep(root, done)
    was = st.session_state.get("lab running", 0)
    now = sum(s.running for s in states)
    st.session_state["lab running"] = now
    if was and not now:
        st.rerun()  # the whole page once more, so that the list stops asking


def _without_replaced(root: Path, states: Sequence[State]) -> list[State]:
    """A head that was trained once more to be kept stands in the place of the first."""
    old = {s.job.about.get("replaces") for s in states if s.succeeded}
    for id_ in old & {s.job.id for s in states}:
        jobs.forget(root, str(id_))
    return [s for s in states if s.job.id not in old]


def _keep(root: Path, done: Sequence[State]) -> None:
    """Makes a run of a head that was trained without: the same seed on one thread gives the same head again."""
    free = {s.job.id: s for s in done if not s.job.about.get("kept")}
    if not free:
        return
    left, right = st.columns([4, 2], vertical_alignment="bottom")
    with left:
        chosen = st.selectbox(
            "Keep a head as a run",
            list(free),
            key="keep-which",
            format_func=lambda id_: f"{done.index(free[id_]) + 1}: {free[id_].job.label}",
            help="Trains it once more, which gives the very same head, and writes model and predictions below lab/, to "
            "look at on the other pages and to export.",
        )
    with right:
        asked = st.button("Keep it", key="keep-head", icon=":material/save:", width="stretch")
    if asked and chosen in free:
        job, kept = free[chosen].job, free_name(root)
        try:
            jobs.start(
                root, job.label, [*job.arguments, "--out", kept], about={**job.about, "kept": kept, "replaces": job.id}
            )
        except CalibrantError as error:
            st.error(elements.said(error), icon=":material/error:")
            return
        st.rerun()


def _running(root: Path, states: Sequence[State]) -> None:
    for state in states:
        left, right = st.columns([5, 1], vertical_alignment="center")
        with left:
            done = _PROGRESS.search(state.last_line)
            share = int(done[1].replace(",", "")) / max(1, int(done[2].replace(",", ""))) if done else 0.0
            last = f": {elements.said(state.last_line, 100)}" if state.last_line else ""
            st.progress(
                min(1.0, share),
                text=f"Training for {state.seconds:.0f} s{last}. {elements.said(state.job.label, 200)}.",
            )
        with right:
            if st.button("Cancel", key=f"cancel-{state.job.id}", icon=":material/stop:", width="stretch"):
                jobs.cancel(root, state.job.id)
                jobs.forget(root, state.job.id)
                st.rerun()


def _failed(root: Path, states: Sequence[State]) -> None:
    for state in states:
        left, right = st.columns([5, 1], vertical_alignment="center")
        with left:
            why = state.last_line.removeprefix("Error: ") or "it ended without a word"
            st.error(f"{plain(state.job.label)}: {elements.said(why, 400)}", icon=":material/error:")
        with right:
            if st.button("Dismiss", key=f"forget-{state.job.id}", width="stretch"):
                jobs.forget(root, state.job.id)
                st.rerun(scope="fragment")


def _table(done: Sequence[State]) -> None:
    results = {state.job.id: state.job.result() for state in done}
    split = "test" if all(r.get("test") for r in results.values()) else "val"
    names = {s.job.id: f"{n + 1}: {s.job.label}" for n, s in enumerate(done)}
    baseline = controls.choose(
        "Baseline",
        list(names),
        key="baseline",
        labels=names,
        about="|".join(names),
        help="The others are shown as differences from it.",
    )
    lines = []
    base = _numbers(results[baseline][split])
    for state in done:
        id_ = state.job.id
        values = _numbers(results[id_][split])
        line: dict[str, Any] = {"Head": names[id_], "Kept as": state.job.about.get("kept") or "–"}
        for name, value in values.items():
            digits = 4 if name == "NLL" else 2
            moved = value - base.get(name, float("nan"))
            line[name] = f"{value:.{digits}f}" if id_ == baseline else f"{moved:+.{digits}f}"
        line["Total prior strength"] = results[id_].get("total_strength")
        line["Seconds"] = round(state.seconds, 1)
        lines.append(line)
    table = pd.DataFrame(lines)
    config: dict[str, Any] = {name: st.column_config.TextColumn(help=_HELP.get(name)) for name in base}
    elements.table(
        table,
        key="lab-table",
        download="laboratory",
        columns={"Head": st.column_config.TextColumn(pinned=True, width="medium"), **config},
    )
    st.markdown(
        f"On {split} images. The row of the baseline shows its numbers, the others "
        "the difference from it, in points. One run is one seed: differences of a point may be chance; "
        "`calibrant sweep` repeats with several seeds and tests them."
    )
    for state in done:
        warning = results[state.job.id].get("double_correction")
        if warning:
            st.warning(f"{plain(names[state.job.id])}: {plain(warning)}, and 1 is Bayes.", icon=":material/warning:")


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    known = {key: float(value) for key, value in metrics.items() if isinstance(value, float | int)}
    found = {name: 100 * known[key] for key, name in _PERCENT.items() if key in known}
    return found | ({"NLL": known["nll"]} if "nll" in known else {})


def free_name(root: Path) -> str:
    """Of no folder that is there, and of none that a job is about to make."""
    number, taken = 1, {s.job.about.get("kept") for s in jobs.states(root) if s.running}
    while (root / "lab" / f"head-{number:03d}").exists() or f"lab/head-{number:03d}" in taken:
        number += 1
    return f"lab/head-{number:03d}"
