"""Production: what a served model does, from its feedback log, with the labels that have arrived."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from calibrant.artifacts.feedback import Served
from calibrant.artifacts.feedback_logits import said_of_cut
from calibrant.calibration.monitoring.alarms import AlarmState
from calibrant.dashboard.draw import charts, diagrams
from calibrant.dashboard.folder.artifacts import FeedbackRef, FolderIndex, Model, PredictionsRef, Run
from calibrant.dashboard.folder.files import stamp, stamps
from calibrant.dashboard.numbers import deployed, traffic
from calibrant.dashboard.numbers.traffic import Traffic
from calibrant.dashboard.views.diagrams import table_of
from calibrant.dashboard.views.production import class_shares, recalibrate, since
from calibrant.dashboard.widgets import controls, elements

_FRESH_SECONDS = 30
_NO_REFERENCE = "none"
_HISTOGRAM_BINS = 20


def render(folder_index: FolderIndex) -> None:
    elements.title("Production")
    if not folder_index.feedback:
        st.info("No feedback log here yet. The server writes one:", icon=":material/info:")
        file = folder_index.models[0].name if folder_index.models else "model.onnx"
        elements.command(folder_index.root, f"calibrant serve {shlex.quote(file)} --feedback-log feedback")
        return
    first, second, third = st.columns(3)
    with first:
        name = controls.choose("Feedback log", [f.name for f in folder_index.feedback], key="log")
    log = next(f for f in folder_index.feedback if f.name == name)
    feedback = traffic.read(log.path, traffic.log_stamps(log.path))
    served = [s for s in feedback.served if len(s.ids)]
    if not served:
        st.info("The log holds no predictions yet.", icon=":material/hourglass_empty:")
        return
    labels = {s.model.sha256: f"{s.model.name}, version {s.model.version} ({s.model.sha256[:8]})" for s in served}
    with second:
        chosen = controls.choose(
            "Served file", list(labels), key="served", default=served[-1].model.sha256, labels=labels, about=name
        )
    one = next(s for s in served if s.model.sha256 == chosen)
    model = traffic.matching(folder_index.models, one)
    with third:
        reference = _reference_control(folder_index, one, model)
    orphans, picked = len(feedback.labels_without_prediction), int((one.chosen >= 0).sum())
    for text in _remarks(feedback.damaged_lines, feedback.repeated_ids, orphans, picked):
        st.warning(text, icon=":material/warning:")
    if one.cut is not None:
        words = said_of_cut(one.logits, one.labels, one.cut)
        st.caption(f"Of this log {words}.")
    files = traffic.log_stamps(log.path)
    growing = time.time() - _last_change(log) < _FRESH_SECONDS and _size(log) < traffic.LARGE_LOG
    every = 4 if growing else None
    with st.container(border=True, key="first-words"):
        left, right = st.columns([6, 5])
        with left:
            st.fragment(_first_words, run_every=every)(log, chosen, model)
        with right:
            if model is None:
                st.markdown(
                    "The deployed file that made these predictions is not below this folder, so it cannot be "
                    "recalibrated here."
                )
            else:
                recalibrate.render(model, one, files)
    st.fragment(_live, run_every=every)(log, chosen, model, reference)
    if (found := _summary(log, chosen, model)) is not None:
        since.before_and_after(folder_index, log, model, one, found)


def _last_change(log: FeedbackRef) -> float:
    return max((s.mtime_ns for s in traffic.log_stamps(log.path)), default=0) / 1e9


def _size(log: FeedbackRef) -> int:
    return sum(s.size for s in traffic.log_stamps(log.path))


def _remarks(damaged: int, repeated: int, orphans: int, picked: int) -> list[str]:
    found = []
    if damaged:
        found.append(f"{damaged:,} damaged lines of the log were skipped; a crash cuts off at most one a segment.")
    if repeated:
        found.append(f"{repeated:,} predictions came under an id that was used before and were left out.")
    if orphans:
        found.append(f"{orphans:,} labels are for predictions that the log does not hold.")
    if picked:
        found.append(f"{picked:,} labels are of pictures that were picked, not drawn at random: no figure counts them.")
    return found


def _summary(log: FeedbackRef, chosen: str, model: Model | None) -> Traffic | None:
    files = traffic.log_stamps(log.path)
    return traffic.summary(log.path, files, chosen, None if model is None else stamp(model.path))


def _first_words(log: FeedbackRef, chosen: str, model: Model | None) -> None:
    if (found := _summary(log, chosen, model)) is not None:
        since.first_words(found)


def _live(log: FeedbackRef, chosen: str, model: Model | None, reference: PredictionsRef | None) -> None:
    """The part that follows the log while the server writes it."""
    found = _summary(log, chosen, model)
    if found is None:
        st.info("The log no longer holds this file's predictions.", icon=":material/info:")
        return
    left, right = st.columns([7, 5])
    with left:
        since.chart(found)
    with right:
        _reliability(found)
    _numbers(found)
    confidence = partial(_confidence, model=model, reference=reference)
    parts: list[Callable[[Traffic], None]] = [_volume, _latency, confidence]
    columns = st.columns(2)
    for i, part in enumerate(parts):
        if i and i % 2 == 0:
            columns = st.columns(2)
        with columns[i % 2]:
            part(found)
    if model is not None and reference is not None:
        class_shares.render(log, traffic.log_stamps(log.path), chosen, model, reference)
    _alarms(found)


def _numbers(found: Traffic) -> None:
    """The last rows and the last labels, as the server's monitor says them."""
    columns = st.columns(4)
    recent, labelled = found.recent, found.recent.labelled
    with columns[0]:
        st.metric("Rows served", elements.count(found.rows))
        st.markdown(f"{0 if found.labelled is None else found.labelled.rows:,} of them labelled")
    with columns[1]:
        st.metric(
            "Expected accuracy, no labels",
            elements.percent(recent.expected.value),
            help="The mean confidence, corrected by what held-out data said where the file knows it. It is right as "
            "long as the confidences are: under a shift of the data it is too high.",
        )
        st.markdown(
            f"(95 %) {100 * recent.expected.low:.2f} – {elements.percent(recent.expected.high)}"
            f"{_last(recent.rows, found.rows, 'rows')}"
        )
    promised = recent.expected_of_labelled
    if found.labelled is None or labelled is None or promised is None:
        with columns[2]:
            st.metric("Accuracy, labelled rows", "–")
            st.markdown("No label has arrived yet." if found.labelled is None else "Too few labels yet.")
        return
    accuracy, error = labelled.accuracy, labelled.ece
    with columns[2]:
        st.metric(
            "Accuracy, labelled rows",
            elements.percent(accuracy.value),
            help="Labels that arrive are not always a fair sample of the traffic.",
        )
        st.markdown(
            f"(95 %) {100 * (accuracy.low or 0):.2f} – {elements.percent(accuracy.high)}; expected of these rows "
            f"{elements.percent(promised.value)}{_last(labelled.rows, found.labelled.rows, 'labels')}"
        )
    with columns[3]:
        st.metric(
            "ECE, labelled rows",
            elements.percent(error.value),
            help="Expected calibration error: the average distance between what the model claims and how often it is "
            "right.",
        )
        if error.low is not None:
            st.markdown(
                f"True value (95 %) {100 * error.low:.2f} – {elements.percent(error.high)}; if calibrated "
                f"{elements.percent(error.null)}"
            )


def _last(rows: int, of: int, what: str) -> str:
    """Which rows a figure is about, where these are not all."""
    return "" if rows == of else f"; the last {rows:,} {what}"


# ---- charts ----


def _volume(found: Traffic) -> None:
    table = volume(found.times)
    elements.chart(
        "volume",
        table,
        partial(charts.columns, table, x="from", x2="to", y="rows", title="Rows served (UTC)"),
        alt="Rows served over time",
        key="chart-volume",
    )


def volume(times: np.ndarray[Any, Any]) -> pd.DataFrame:
    """Rows a step of a round length: at most about forty steps from the first row to the last."""
    start, end = float(times.min()), float(times.max())
    steps = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
    step = next((s for s in steps if (end - start) / s <= 40), steps[-1])
    first = int(start // step)
    count = np.bincount((times // step).astype(np.int64) - first)
    begin = (first + np.arange(len(count))) * step
    return pd.DataFrame(
        {
            "from": pd.to_datetime(begin, unit="s"),
            "to": pd.to_datetime(begin + step, unit="s"),
            "rows": count,
        }
    )


def _latency(found: Traffic) -> None:
    if found.latency is None:
        st.markdown("The log does not say how long answers took: it was written by an older server.")
        return
    table = pd.DataFrame(
        [
            {"time": pd.to_datetime(w.time, unit="s"), "quantile": name, "ms": value}
            for w in found.windows
            if w.latency is not None
            for name, value in (
                ("half of the answers", w.latency.half),
                ("95 in 100", w.latency.p95),
                ("99 in 100", w.latency.p99),
            )
        ]
    )
    elements.chart(
        "latency",
        table,
        partial(charts.quantiles, table, title="Milliseconds in the server, at most (UTC)"),
        alt="Median, 95th and 99th percentile of the latency over time",
        key="chart-latency",
    )
    st.markdown(
        f"Of all answers, half took at most **{found.latency.half:.1f} ms**, 95 % at most "
        f"**{found.latency.p95:.1f} ms**, 99 % at most **{found.latency.p99:.1f} ms**: the wait in the queue and "
        "the work of the model, without the way to the server and back."
    )


def _confidence(found: Traffic, model: Model | None, reference: PredictionsRef | None) -> None:
    parts = [_shares(found.confidence, "served")]
    if model is not None and reference is not None:
        held_out = deployed.reference_confidence(stamps(reference.path), stamp(model.path))
        parts.append(_shares(held_out, "held-out data"))
    table = pd.concat(parts, ignore_index=True)
    elements.chart(
        "confidence",
        table,
        partial(charts.steps, table, title="Confidence of the answers"),
        alt="Confidence of served rows and of held-out data",
        key="chart-confidence",
    )


def _shares(confidence: np.ndarray[Any, Any], name: str) -> pd.DataFrame:
    count, edges = np.histogram(confidence, bins=_HISTOGRAM_BINS, range=(0, 1))
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "share": count / max(1, len(confidence)), "rows": name})


def _reliability(found: Traffic) -> None:
    if found.labelled is None:
        st.markdown("The reliability diagram appears with the first labels.")
        return
    bins = table_of(found.labelled.diagram(10))
    elements.chart(
        "served-reliability",
        bins,
        partial(diagrams.reliability, bins, title=f"Reliability, {found.labelled.rows:,} labelled rows", height=260),
        alt="Reliability diagram of the labelled rows",
        key="chart-served-reliability",
    )


_TESTS = {
    "calibration": "Confidences against the labels",
    "confidence": "Drift of the confidences",
    "prior": "Drift of the predicted classes",
    "features": "Drift of the features",
}


def _alarms(found: Traffic) -> None:
    st.subheader("Alarms")
    table = pd.DataFrame(
        [
            {
                "Test": _TESTS[kind],
                "State": _state(a),
                "Rows seen": elements.count(a.rows),
                "Raised at row": "–" if a.raised_at is None else elements.count(a.raised_at),
                "Last fired at row": "–" if a.fired_at is None else elements.count(a.fired_at),
                "Evidence": _evidence(a),
                "Fires at": f"{a.log_threshold:.2f}",
            }
            for kind, a in found.alarms.items()
        ]
    )
    elements.table(
        table,
        key="alarm-table",
        download="alarms",
        columns={
            "Test": st.column_config.TextColumn(pinned=True),
            "Evidence": st.column_config.TextColumn(
                help="Logarithm; it may be looked at at any time. After an alarm it is gathered anew, and fires again "
                "as long as it comes."
            ),
        },
    )
    st.markdown(
        "The server's own alarms, with its settings and its baseline, since its last start. Each keeps its false "
        "alarms rare however often one looks. Drift alone does not mean that the model is wrong; confidences that no "
        "longer match the labels do."
    )


def _evidence(alarm: AlarmState) -> str:
    if alarm.log_evidence is None:
        return "–" if alarm.fired_at is None else "gathered anew"
    return f"{alarm.log_evidence:.2f}"


def _state(alarm: AlarmState) -> str:
    if alarm.on:
        return "ALARM"
    if alarm.rows < alarm.needs:
        return f"learning: {alarm.rows:,} of {alarm.needs:,} rows"
    return "quiet"


# ---- reference ----


def _beside(run: Run, model: Model | None) -> bool:
    return model is not None and model.path.parent in (run.path, run.path.parent)


def _reference_control(folder_index: FolderIndex, served: Served, model: Model | None) -> PredictionsRef | None:
    """Held-out predictions to lay beside the traffic; they need the deployed file, whose formula they go through."""
    found = {
        f"{run.name}/{p.name}": p
        for run in sorted(folder_index.runs, key=lambda r: not _beside(r, model))
        for p in run.predictions
        if model is not None and p.source.class_names == served.model.classes
    }
    near = [name for name in found if name.endswith("/val")]
    name = controls.choose(
        "Compare confidence with",
        [*found, _NO_REFERENCE],
        key="reference",
        default=near[0] if near else None,
        labels={_NO_REFERENCE: "nothing"},
        about=served.model.sha256,
        help="Held-out predictions of a run with the same classes, as the deployed file would answer them.",
    )
    return found.get(name)
