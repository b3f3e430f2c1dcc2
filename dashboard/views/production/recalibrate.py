"""What to do on Production: whether recalibrating with the labels would help, and the button only where it does."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from calibrant.artifacts.feedback import Served
from calibrant.calibration.metrics.table import metric
from calibrant.calibration.verdict.level import level_of
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.verdict import WORDS
from calibrant.dashboard.folder.artifacts import Model
from calibrant.dashboard.folder.files import Stamp
from calibrant.dashboard.numbers import recalibration
from calibrant.dashboard.numbers.recalibration import Trial
from calibrant.dashboard.views.verdict import did_it_help
from calibrant.dashboard.widgets import elements
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError


def render(model: Model, served: Served, files: tuple[Stamp, ...]) -> None:
    """A button only where it surely helps."""
    try:
        with st.spinner("Trying to recalibrate"):
            trial = recalibration.tried(model, served, files)
    except CalibrantError as error:
        words = elements.said(error.what[:1].upper() + error.what[1:]) + ". " + elements.said(error.fix or "")
        st.markdown(f"**Would recalibrating help?** {words}")
        return
    st.markdown(
        f"**Would recalibrating help?** {did_it_help(trial.change)} Fitted on the older {trial.fitted_rows:,} labelled "
        f"rows, judged on the newer {trial.judged_rows:,}. Recalibrated, its confidence would be: "
        f"**{WORDS[level_of(trial.after.metrics['ece'], MARGIN)].lower()}**."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        if trial.helps:
            _button(model, trial)
        with st.popover("Figures", icon=":material/table:", type="tertiary", key="trial-figures"):
            _trial_table(model, trial)
    if st.session_state.get("written"):
        calibrator, file = st.session_state["written"]
        st.success(
            f"Written beside the old file: {plain(calibrator)} and {plain(file)}. The old file is unchanged; a server "
            "that watches the folder takes the new one when it gets the old one's name.",
            icon=":material/check_circle:",
        )


def _button(model: Model, trial: Trial) -> None:
    if st.button("Write a new calibrator and a new deployed file", icon=":material/save:", key="recalibrate"):
        with st.spinner("Writing"):
            written = recalibration.write(model, trial)
        st.session_state["written"] = [written.calibrator.name, written.model.name]


def _trial_table(model: Model, trial: Trial) -> None:
    new = float(trial.calibrator.parameters["temperature"])
    old = "none" if trial.old_temperature is None else f"{trial.old_temperature:.3f}"
    st.markdown(f"Temperature of {plain(short(model.name, 60))}: {old}, fitted on all labelled rows: {new:.3f}.")
    table = pd.DataFrame(
        [
            {"Number": m.title()}
            | {
                side: m.scale * evaluation.metrics[m.key].value
                for side, evaluation in (("As served", trial.before), ("Recalibrated", trial.after))
            }
            for m in map(metric, ("accuracy", "nll", "ece"))
        ]
    )
    elements.table(
        table,
        key="trial-table",
        columns={c: st.column_config.NumberColumn(format="%.4f") for c in ("As served", "Recalibrated")},
    )
    st.markdown("; ".join(f"{m.name}: {m.help}" for m in map(metric, ("ece", "nll"))) + ".")
