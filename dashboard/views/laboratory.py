"""Laboratory: heads on frozen features, one switch at a time, trained in the background and set against a baseline."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import metric
from calibrant.dashboard import jobs, settings
from calibrant.dashboard.draw import downloads
from calibrant.dashboard.folder.artifacts import FeaturesRef, Shelf
from calibrant.dashboard.jobs import Job, State
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.dashboard.widgets.switches import ALL, MAIN, SECTIONS, Switch, Value, describe, from_link, to_link
from calibrant.dashboard.widgets.switches import settings as switch_settings
from calibrant.errors import CalibrantError

KIND = "head"
_KEY, _KEPT, _PUBLISHED, _ADDRESS = "switch-", "lab switches", "lab link", "switches"
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


def render(shelf: Shelf) -> None:
    st.title("Laboratory")
    if not shelf.features:
        st.info("No cached features here yet. A frozen backbone makes them once:", icon=":material/info:")
        st.code(
            "calibrant features --model vit_base_patch16_dinov3.lvd1689m --data images --out runs/features",
            language="bash",
        )
        return
    name = controls.choose("Features", [f.name for f in shelf.features], key="features")
    features = next(f for f in shelf.features if f.name == name)
    st.markdown(_about(features))
    # Only this part runs again when a switch is moved, only the list while something is training.
    st.fragment(_form)(features)
    running = any(s.running for s in _mine(settings.current().root, features.name))
    st.fragment(_results, run_every=1 if running else None)(features.name)


def _about(features: FeaturesRef) -> str:
    m = features.manifest
    model = m.get("model")
    backbone = str(model.get("name", "?")) if isinstance(model, dict) else "?"
    splits = m.get("splits")
    images = ", ".join(f"{n:,} {s}" for s, n in splits.items()) if isinstance(splits, dict) else "?"
    classes = len(m.get("class_names") or ())
    facts = f"{m.get('width', '?')} features, {classes} classes, {images} images"
    return f"Frozen backbone **{plain(backbone)}**, {plain(facts)}."


# ---- what to train ----


def _form(features: FeaturesRef) -> None:
    _from_address()
    values: dict[str, Value] = {}
    kind = str(st.session_state.get(_KEY + "head.kind", ALL["head.kind"].default))
    columns = st.columns(3)
    for i, name in enumerate(MAIN):
        with columns[i % 3]:
            values[name] = _control(ALL[name], kind)
    columns = st.columns(3)
    for i, (section, switches) in enumerate(SECTIONS.items()):
        with columns[i % 3], st.expander(f"More: {section.lower()}"):
            for switch in switches:
                if switch.key not in MAIN:
                    values[switch.key] = _control(switch, kind)
    values = {key: values[key] for key in ALL}
    st.session_state[_KEPT] = values
    _to_address(values)
    left, middle, right = st.columns([2, 2, 3], vertical_alignment="center")
    with middle:
        keep = controls.switch(
            "Keep the run",
            key="keep",
            help="Writes model and predictions below lab/, to look at on the other pages and to export. The file "
            "holds the backbone too, so it can be large.",
        )
    with right:
        st.button("All switches off", icon=":material/restart_alt:", key="all-off", type="tertiary", on_click=_all_off)
    try:
        arguments, kept = _command(features, values, keep=keep)
    except CalibrantError as error:
        st.error(elements.said(error), icon=":material/error:")
        return
    with left:
        asked = st.button(
            "Train this head", type="primary", icon=":material/play_arrow:", width="stretch", key="train-head"
        )
    st.markdown("The same from a terminal, in the folder of the runs:")
    st.code(shlex.join(["calibrant", *arguments]), language="bash", wrap_lines=True)
    if asked:
        try:
            _start(features, values, arguments, kept)
        except CalibrantError as error:
            st.error(elements.said(error), icon=":material/error:")
            return
        st.rerun()


def _control(switch: Switch, kind: str) -> Value:
    key = _KEY + switch.key
    off = not switch.applies_to(kind)
    if key not in st.session_state:
        # Streamlit forgets controls of a page that was left.
        st.session_state[key] = st.session_state.get(_KEPT, {}).get(switch.key, switch.default)
    if switch.options:
        return str(st.selectbox(switch.label, switch.options, key=key, help=switch.tooltip(), disabled=off))
    if switch.limits is None:
        return str(st.text_input(switch.label, key=key, help=switch.tooltip(), max_chars=500, disabled=off)).strip()
    low, high, step = switch.limits
    number = int if isinstance(switch.default, int) else float
    return number(
        st.slider(
            switch.label,
            number(low),
            number(high),
            step=number(step),
            key=key,
            help=switch.tooltip(),
            disabled=off,
            format=None if step >= 0.01 else "%.4f",
        )
    )


def _all_off() -> None:
    for switch in ALL.values():
        st.session_state[_KEY + switch.key] = switch.default


def _from_address() -> None:
    """Takes the switches over from a link, once for each link."""
    asked = st.query_params.get(_ADDRESS)
    if asked is None or asked == st.session_state.get(_PUBLISHED):
        return
    st.session_state[_PUBLISHED] = asked
    found = from_link(asked)
    if found is None:
        st.warning("The link names switches that are not here; all are off.", icon=":material/link_off:")
        found = {}
    for switch in ALL.values():
        st.session_state[_KEY + switch.key] = found.get(switch.key, switch.default)


def _to_address(values: Mapping[str, Value]) -> None:
    shown = to_link(values)
    st.session_state[_PUBLISHED] = shown
    controls.keep(_ADDRESS, shown)


def _command(features: FeaturesRef, values: Mapping[str, Value], *, keep: bool) -> tuple[list[str], str | None]:
    """What is run, with paths as seen from the folder of the runs, and where the run is kept."""
    root = settings.current().root
    arguments = ["head", _relative(features.path, root), "--json"]
    for setting in switch_settings(values):
        arguments += ["--set", setting]
    kept = _free_name(root) if keep else None
    return [*arguments, *(["--out", kept] if kept else [])], kept


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _start(features: FeaturesRef, values: Mapping[str, Value], arguments: Sequence[str], kept: str | None) -> Job:
    changed = {key: value for key, value in values.items() if value != ALL[key].default}
    about = {"kind": KIND, "features": features.name, "values": changed, "kept": kept}
    return jobs.start(settings.current().root, describe(values), arguments, about=about)


def _free_name(root: Path) -> str:
    """Of no folder that is there, and of none that a job is about to make."""
    number, taken = 1, {s.job.about.get("kept") for s in jobs.states(root) if s.running}
    while (root / "lab" / f"head-{number:03d}").exists() or f"lab/head-{number:03d}" in taken:
        number += 1
    return f"lab/head-{number:03d}"


# ---- what came out ----


def _mine(root: Path, features: str) -> list[State]:
    """Jobs of this cache, the oldest first."""
    found = [
        s for s in jobs.states(root) if s.job.about.get("kind") == KIND and s.job.about.get("features") == features
    ]
    return found[::-1]


def _results(features: str) -> None:
    root = settings.current().root
    states = _mine(root, features)
    _running(root, [s for s in states if s.running])
    _failed(root, [s for s in states if not s.running and not s.succeeded])
    done = [s for s in states if s.succeeded]
    if not done:
        st.markdown("Train one head with all switches off: it is the baseline that the others are set against.")
    else:
        _table(done)
    was = st.session_state.get("lab running", 0)
    now = sum(s.running for s in states)
    st.session_state["lab running"] = now
    if was and not now:
        st.rerun()  # the whole page once more, so that the list stops asking


def _running(root: Path, states: Sequence[State]) -> None:
    for state in states:
        left, right = st.columns([5, 1], vertical_alignment="center")
        with left:
            done = _PROGRESS.search(state.last_line)
            share = int(done[1].replace(",", "")) / max(1, int(done[2].replace(",", ""))) if done else 0.0
            last = f": {elements.said(state.last_line, 100)}" if state.last_line else ""
            st.progress(
                min(1.0, share),
                text=f"Training for {state.seconds:.0f} s{last}. {plain(short(state.job.label, 200))}.",
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
        "Baseline", list(names), key="baseline", labels=names, help="The others are shown as differences from it."
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
    st.dataframe(
        table,
        hide_index=True,
        width="stretch",
        key="lab-table",
        column_config={"Head": st.column_config.TextColumn(pinned=True, width="medium"), **config},
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
    downloads.offer("laboratory", table)


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    known = {key: float(value) for key, value in metrics.items() if isinstance(value, float | int)}
    found = {name: 100 * known[key] for key, name in _PERCENT.items() if key in known}
    return found | ({"NLL": known["nll"]} if "nll" in known else {})
