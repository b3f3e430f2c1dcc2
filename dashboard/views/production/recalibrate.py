"""The last part of Production: what recalibrating with the labels would bring, and the button that does it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from calibrant.artifacts.feedback import Served
from calibrant.calibration.metrics.table import metric
from calibrant.dashboard.folder.artifacts import Model
from calibrant.dashboard.numbers import recalibration
from calibrant.dashboard.numbers.recalibration import Trial
from calibrant.dashboard.widgets import elements
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError


def render(model: Model, served: Served) -> None:
    st.subheader("Recalibrate with these labels")
    try:
        trial = recalibration.try_out(model, served)
    except CalibrantError as error:
        st.markdown(elements.said(error.what[:1].upper() + error.what[1:]) + ". " + elements.said(error.fix or ""))
        return
    _trial_table(trial)
    new = float(trial.calibrator.parameters["temperature"])
    old = "none" if trial.old_temperature is None else f"{trial.old_temperature:.3f}"
    st.markdown(f"Temperature of {plain(short(model.name, 60))}: {old}, fitted on all labelled rows: {new:.3f}.")
    if st.button("Write a new calibrator and a new deployed file", icon=":material/save:", key="recalibrate"):
        with st.spinner("Writing"):
            written = recalibration.write(model, trial)
        st.session_state["written"] = [written.calibrator.name, written.model.name]
    if st.session_state.get("written"):
        calibrator, file = st.session_state["written"]
        st.success(
            f"Written beside the old file: {plain(calibrator)} and {plain(file)}. The old file is unchanged; a server "
            "that watches the folder takes the new one when it gets the old one's name.",
            icon=":material/check_circle:",
        )


def _trial_table(trial: Trial) -> None:
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
    st.markdown(
        f"A trial: fitted on the older {trial.fitted_rows:,} labelled rows, judged on the newer {trial.judged_rows:,}. "
        + "; ".join(f"{m.name}: {m.help}" for m in map(metric, ("ece", "nll")))
        + "."
    )
