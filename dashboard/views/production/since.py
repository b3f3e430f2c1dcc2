"""The first words of Production: can the answers still be trusted, what has changed, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from calibrant.artifacts.feedback import Served
from calibrant.dashboard import settings
from calibrant.dashboard.draw import pictures, timeline
from calibrant.dashboard.folder.artifacts import FeedbackRef, FolderIndex, Model
from calibrant.dashboard.numbers import deployed, traffic
from calibrant.dashboard.numbers.onset import Onset
from calibrant.dashboard.numbers.traffic import Part, Traffic
from calibrant.dashboard.views import samples
from calibrant.dashboard.widgets import elements, level
from calibrant.dashboard.widgets.markdown_escape import plain

CHANGED: Mapping[str, str] = {
    "calibration": "Labels stopped to agree with the confidences",
    "confidence": "The confidences drifted",
    "prior": "The mix of answers drifted",
    "features": "The features drifted, whatever the confidences say",
}
_PICTURES = 5


def first_words(found: Traffic) -> None:
    said = found.verdict
    level.badge(said.level)
    st.markdown(f"**{plain(said.sentence)}**")
    for cause in said.causes[:2]:
        st.markdown(f"**Why.** {plain(cause.text)}")
    st.markdown(f"**What changed since when?** {what_changed(found)}")


def what_changed(found: Traffic) -> str:
    if not found.onsets:
        learning = [a for a in found.alarms.values() if a.rows < a.needs]
        return "Nothing that could be told." if not learning else "Nothing so far; some alarms are still learning."
    parts = [
        f"{CHANGED[kind]} **since {_when(o.began_time, o)}**, row {o.began:,}; it was sure at {_when(o.fired_time, o)}."
        for kind, o in sorted(found.onsets.items(), key=lambda item: item[1].began_time)
    ]
    began = first_onset(found)
    spans = ((-np.inf, began.began_time, "Before"), (began.began_time, np.inf, "Since then"))
    told = [_claims(part, name) for low, high, name in spans if (part := traffic.part(found, low, high)) is not None]
    return " ".join([*parts, *told])


def first_onset(found: Traffic) -> Onset:
    """The one that the labels speak for, else the earliest."""
    own = found.onsets.get("calibration")
    return own if own is not None else min(found.onsets.values(), key=lambda o: o.began_time)


def _claims(part: Part, name: str) -> str:
    low, high = part.realised.low or 0.0, part.realised.high or 1.0
    return (
        f"{name} it claims {100 * part.claimed:.1f} % and is right in {100 * part.realised.value:.1f} % "
        f"({100 * low:.1f} – {100 * high:.1f}) of {part.rows:,} labelled rows."
    )


def _when(seconds: float, onset: Onset) -> str:
    """To the second where all of it took less than ten minutes."""
    quick = onset.fired_time - onset.began_time < 600
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %H:%M:%S" if quick else "%d %b %H:%M")


def chart(found: Traffic) -> None:
    table = pd.DataFrame(
        [
            {
                "time": pd.to_datetime(w.time, unit="s"),
                "row": w.last,
                "from": w.first,
                "expected": w.expected.value,
                "low": w.expected.low,
                "high": w.expected.high,
                "labelled": w.labelled,
                "accuracy": None if w.realised is None else w.realised.value,
                "accuracy_low": None if w.realised is None else w.realised.low,
                "accuracy_high": None if w.realised is None else w.realised.high,
            }
            for w in found.windows
        ]
    ).astype({"accuracy": float, "accuracy_low": float, "accuracy_high": float})
    events = pd.DataFrame(
        [
            {
                "began": pd.to_datetime(o.began_time, unit="s"),
                "fired": pd.to_datetime(o.fired_time, unit="s"),
                "text": CHANGED[kind],
            }
            for kind, o in found.onsets.items()
        ],
        columns=["began", "fired", "text"],
    )
    elements.chart(
        "timeline",
        table,
        partial(timeline.timeline, table, events, title="Accuracy: claimed, and what came true (UTC)"),
        alt="Claimed and realised accuracy over time",
        key="chart-timeline",
    )
    shaded = (
        " Shaded in orange: from where the evidence of an alarm began (dashed) to where it was sure."
        if found.onsets
        else ""
    )
    st.markdown(
        "Claimed: the mean confidence of the answers, corrected by what held-out data said; it needs no labels. "
        f"Diamonds outside of the band: confidence no longer means what it says.{shaded}"
    )


def before_and_after(
    folder_index: FolderIndex, log: FeedbackRef, model: Model | None, served: Served, found: Traffic
) -> None:
    """Pictures from both sides of the moment, where the ids of the log name pictures that may be shown."""
    if not found.onsets:
        return
    where = _folders(folder_index, log, model)
    began = first_onset(found).began_time
    st.subheader("Pictures before and after")
    before = _shown(served, found, np.flatnonzero(found.times < began)[::-1], where)
    after = _shown(served, found, _wrong_first(found, np.flatnonzero(found.times >= began)), where)
    if not (before or after):
        st.markdown(
            "The ids of the log name no pictures that are here. Send a picture's path below the folder of images, or "
            "below the folder of the log, as its id, and pictures from both sides of the moment stand here."
        )
        return
    columns = st.columns(2)
    for column, title, shown in (
        (columns[0], f"Before {_when(began, first_onset(found))}", before),
        (columns[1], "Since then, wrong answers first", after),
    ):
        with column:
            st.markdown(f"**{title}**")
            if not shown:
                st.markdown("The ids of these rows name no pictures that are here.")
            with st.container(horizontal=True, key=f"pictures-{title[:5]}", gap="small"):
                for row, picture in shown:
                    with st.container(width=samples.SMALL, gap=None):
                        samples.picture(picture, samples.SMALL)
                        name = plain(served.model.classes[found.predicted[row]])
                        label = int(found.labels[row])
                        sign = "help" if label < 0 else "check" if label == found.predicted[row] else "close"
                        sure = elements.percent(float(found.confidence[row]), 1)
                        st.markdown(f":small[:material/{sign}: {name}]  \n:small[{sure}]")


def _folders(folder_index: FolderIndex, log: FeedbackRef, model: Model | None) -> tuple[Path, ...]:
    """What the ids of a log may be relative to: the log's own folder, and those of the run that the file is from."""
    named = settings.current().images
    held_out = None if model is None else deployed.held_out(folder_index, model)
    known = named if held_out is None else pictures.folders(folder_index, *held_out, named)
    return (log.path, *known)


def _wrong_first(found: Traffic, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    known = found.labels[rows] >= 0
    right = found.predicted[rows] == found.labels[rows]
    return rows[np.lexsort((-found.confidence[rows], np.where(known, right, 2)))]


def _shown(
    served: Served, found: Traffic, rows: NDArray[np.int64], where: tuple[Path, ...]
) -> list[tuple[int, pictures.Shown]]:
    shown = []
    for row in rows[:500].tolist():
        picture = pictures.find(where, served.ids[found.order[row]])
        if picture is not None:
            shown.append((row, picture))
        if len(shown) == _PICTURES:
            break
    return shown
