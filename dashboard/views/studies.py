"""Studies: methods beside each other, with what their differences to the reference are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import METRICS
from calibrant.dashboard.folder.artifacts import StudyRef
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.errors import FormatError

_RECORDS = {m.key: m for m in METRICS}
_HELP = {
    "Mean": "Over the seeds",
    "Deviation": "Over the seeds",
    "Difference": "To the reference, paired by seed and test image",
    "From": "Lower end of the difference's 95 % interval",
    "To": "Upper end of the difference's 95 % interval",
    "Mean rank": "Over the seeds, 1 the best; controls are not ranked",
    "Control of": "A method that is there to show what another one's gain is worth",
}


def render(studies: Sequence[StudyRef]) -> None:
    if not studies:
        return
    st.subheader("Studies")
    names = [s.name for s in studies]
    study = studies[names.index(controls.choose("Study", names, key="study"))]
    try:
        blocks = {_heading(block): block for block in study.block["blocks"]}
        metrics = [str(m) for m in study.block["metrics"]]
        title, whole = str(study.block["title"]), (int(study.block["finished"]), int(study.block["total"]))
        tables = {(b, m): table_of(blocks[b], m) for b in blocks for m in metrics}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FormatError(
            "is no table of a study", where=study.path, fix="join it again: calibrant study --join"
        ) from None
    st.markdown(f"**{plain(title)}**")
    if whole[0] < whole[1]:
        st.info(f"Not finished: {whole[0]} of {whole[1]} runs.", icon=":material/info:")
    if not tables:
        return
    left, right = st.columns(2)
    with left:
        shown = controls.choose("Data, network and calibrator", list(blocks), key="study-block")
    with right:
        titles = {m: title_of(m) for m in metrics}
        metric = controls.choose("Metric", metrics, key="study-metric", labels=titles)
    block = blocks[shown]
    st.markdown(f"{titles[metric]} over {len(block['seeds'])} seeds and {int(block['images']):,} test images")
    elements.table(
        tables[shown, metric],
        key="study-table",
        columns={name: st.column_config.Column(help=text) for name, text in _HELP.items()},
        download=f"study-{metric}",
    )


def table_of(block: Mapping[str, Any], metric: str) -> pd.DataFrame:
    """One row per method, in the unit that the metric is shown in."""
    record = _RECORDS.get(metric)
    scale = 100.0 if record is None else record.scale

    def scaled(value: float | None) -> float | None:
        return None if value is None else round(scale * float(value), 4)

    rows = []
    for line in block["lines"]:
        e = line["estimates"][metric]
        rows.append(
            {
                "Method": str(line["method"]),
                "Mean": scaled(e["mean"]),
                "Deviation": scaled(e["deviation"]),
                "Difference": scaled(e["difference"]),
                "From": scaled(e["low"]),
                "To": scaled(e["high"]),
                "Mean rank": e["rank"],
                "Control of": str(line["control"]),
            }
        )
    return pd.DataFrame(rows)


def title_of(metric: str) -> str:
    return _RECORDS[metric].title() if metric in _RECORDS else f"{metric.replace('_', ' ').capitalize()} (%)"


def _heading(block: Mapping[str, Any]) -> str:
    view = f"+ {block['view']}" if block["view"] else "as trained"
    network = "" if block["network"] == "default" else f", {block['network']}"
    return f"{block['data']}{network}, {view}"
