"""A part of Production: how often each class comes, before anybody has labelled a row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from calibrant.dashboard.folder.artifacts import FeedbackRef, Model, PredictionsRef
from calibrant.dashboard.folder.files import Stamp, stamp, stamps
from calibrant.dashboard.numbers.served_prior import served_prior
from calibrant.dashboard.widgets import elements
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.errors import DataError

MOST_SHARES = 12


def render(log: FeedbackRef, files: tuple[Stamp, ...], chosen: str, model: Model, reference: PredictionsRef) -> None:
    """How often each class comes, read off the answers; only where held-out predictions are there to learn from."""
    st.subheader("Class shares, without labels")
    try:
        found = served_prior(log.path, files, chosen, stamps(reference.path), stamp(model.path))
    except DataError as error:
        st.markdown(elements.said(error))
        return
    if found is None:
        return
    names = model.card.classes
    for sentence in found.sentences([plain(name) for name in names]):
        st.markdown(sentence[:1].upper() + sentence[1:] + ".")
    most = np.argsort(-np.abs(found.prior - found.base), kind="stable")[:MOST_SHARES]
    table = pd.DataFrame({
        "Class": [names[k] for k in most],
        "Held-out rows, %": 100 * found.base[most],
        "Last rows served, %": 100 * found.prior[most],
        "95 % from": 100 * found.low[most],
        "to": 100 * found.high[most],
    })  # fmt: skip
    elements.table(
        table,
        key="class-shares",
        download="class-shares",
        columns={name: st.column_config.NumberColumn(format="%.1f") for name in table.columns if name != "Class"},
    )
    if len(names) > MOST_SHARES:
        st.markdown(f"The {MOST_SHARES} of {len(names):,} classes whose share differs most.")
