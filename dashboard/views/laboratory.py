"""Laboratory: heads on frozen features, one switch at a time, trained in the background and set against a baseline."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from calibrant.dashboard import jobs, settings
from calibrant.dashboard.folder.artifacts import FeaturesRef, FolderIndex
from calibrant.dashboard.jobs import Job
from calibrant.dashboard.views import lab_results
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.dashboard.widgets.switches import ALL, MAIN, SECTIONS, Switch, Value, describe, from_link, to_link
from calibrant.dashboard.widgets.switches import settings as switch_settings
from calibrant.errors import CalibrantError

_KEY, _KEPT, _PUBLISHED, _ADDRESS = "switch-", "lab switches", "lab link", "switches"


def render(folder_index: FolderIndex) -> None:
    elements.title("Laboratory")
    if not folder_index.features:
        st.info("No cached features here yet. A frozen backbone makes them once:", icon=":material/info:")
        elements.command(
            folder_index.root,
            "calibrant features --model vit_base_patch16_dinov3.lvd1689m --data images --out features",
        )
        return
    name = controls.choose("Features", [f.name for f in folder_index.features], key="features")
    features = next(f for f in folder_index.features if f.name == name)
    st.markdown(_about(features))
    # Only this part runs again when a switch is moved, only the list while something is training.
    st.fragment(_form)(features)
    running = any(s.running for s in lab_results.mine(settings.current().root, features.name))
    st.fragment(lab_results.render, run_every=1 if running else None)(features.name)


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
    kept = lab_results.free_name(root) if keep else None
    return [*arguments, *(["--out", kept] if kept else [])], kept


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _start(features: FeaturesRef, values: Mapping[str, Value], arguments: Sequence[str], kept: str | None) -> Job:
    changed = {key: value for key, value in values.items() if value != ALL[key].default}
    about = {"kind": lab_results.KIND, "features": features.name, "values": changed, "kept": kept}
    return jobs.start(settings.current().root, describe(values), arguments, about=about)
