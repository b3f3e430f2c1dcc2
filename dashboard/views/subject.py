"""Which thing a page is about: a run or a deployed file, by which rows, through what. It holds on every page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from calibrant.dashboard.folder.artifacts import CalibratorRef, FolderIndex, Model, PredictionsRef, Run
from calibrant.dashboard.numbers import deployed, subjects
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views.verdict import NO_CALIBRATOR
from calibrant.dashboard.widgets import controls, elements


@dataclass(frozen=True)
class Chosen:
    """`run`: whose predictions judge; the owner itself, or the run that a deployed file came from."""

    owner: Run | Model
    run: Run
    predictions: PredictionsRef
    through: CalibratorRef | Model | None

    @property
    def scored(self) -> Scored:
        return Scored.of(self.predictions, self.through)


def choose(folder_index: FolderIndex, *, labels: bool = False) -> Chosen | None:
    """None where nothing can be chosen; the page then says what to run. `labels`: of independent labels too."""
    everyone = subjects.owners(folder_index, labels=labels)
    if everyone:
        return _controls(folder_index, everyone, labels=labels)
    elements.troubles(folder_index.troubles)
    if any(run.labels for run in folder_index.runs):
        st.info(
            "The predictions here are of independent labels, of which a row may have several or none: there is no one "
            "answer that this page could be about. The Reliability page shows each label.",
            icon=":material/info:",
        )
        return None
    st.info("No predictions here yet. Training writes them, and so does:", icon=":material/info:")
    run = shlex.quote(folder_index.runs[0].name) if folder_index.runs else "first"
    elements.command(folder_index.root, f"calibrant predict {run} --data images --out {run}/predictions/test.parquet")
    return None


def _controls(folder_index: FolderIndex, everyone: Sequence[Run | Model], *, labels: bool) -> Chosen:
    first, second, third = st.columns([4, 3, 4])
    with first:
        name = controls.choose(
            "Run or deployed file",
            [o.name for o in everyone],
            key="run",
            default=next((o.name for o in everyone if isinstance(o, Model)), None),
            help="A folder with predictions, or a file.",
        )
    owner = next(o for o in everyone if o.name == name)
    run, offered = deployed.rows_of(folder_index, owner)
    offered = (*offered, *run.labels) if labels and owner is run else offered
    best = min(offered, key=lambda p: ({"test": 0, "val": 1}.get(p.name, 2), p.name))
    with second:
        chosen = controls.choose(
            "Predictions",
            [p.name for p in offered],
            key="predictions",
            default=best.name,
            about=name,
            help="By which of the run's prediction files it is judged.",
        )
    predictions = next(p for p in offered if p.name == chosen)
    with third:
        through = _through(folder_index, owner, run, predictions)
    return Chosen(owner, run, predictions, through)


def _through(
    folder_index: FolderIndex, owner: Run | Model, run: Run, predictions: PredictionsRef
) -> CalibratorRef | Model | None:
    if isinstance(owner, Model):
        st.text_input("After", "as the file answers", disabled=True, key=f"as-deployed-{owner.name}")
        return owner
    found = folder_index.calibrators_for(run, predictions)
    name = controls.choose(
        "After calibration with",
        [*(c.name for c in found), NO_CALIBRATOR],
        key="calibrator",
        labels={NO_CALIBRATOR: "nothing: show it as it is"} | {c.name: _calibrator_label(c) for c in found},
        about=f"{run.name}: {len(predictions.source.class_names)}",
        help="Calibrators in the run's folder or beside it. Fit one with calibrant calibrate.",
    )
    return next((c for c in found if c.name == name), None)


def _calibrator_label(ref: CalibratorRef) -> str:
    temperature = ref.calibrator.parameters.get("temperature")
    what = f"T = {temperature:.3f}" if isinstance(temperature, float) else ref.calibrator.method
    return f"{ref.name} ({what})"
