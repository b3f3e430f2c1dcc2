"""Reliability: does the model mean what it claims? Before and after calibration, down to the pictures of a bin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.intervals import Measured
from calibrant.calibration.reliability import ReliabilityDiagram
from calibrant.dashboard import charts, controls, downloads, measures, show
from calibrant.dashboard.artifacts import CalibratorRef, PredictionsRef, Run, Shelf
from calibrant.dashboard.groups import Selection, selections
from calibrant.dashboard.measures import Scored
from calibrant.dashboard.views import samples

NO_CALIBRATOR = "none"


@dataclass(frozen=True)
class Choice:
    run: Run
    predictions: PredictionsRef
    calibrator: CalibratorRef | None
    bins: int
    selection: Selection
    uniform: bool
    mass: bool  # bins of equally many rows


@dataclass(frozen=True)
class Side:
    """One of the two halves of the page."""

    key: str  # before | after
    title: str
    scored: Scored
    diagram: ReliabilityDiagram


def render(shelf: Shelf) -> None:
    st.title("Reliability")
    runs = [run for run in shelf.runs if run.predictions]
    if not runs:
        show.troubles(shelf.troubles)
        st.info("No predictions here yet. Training writes them, and so does:", icon=":material/info:")
        st.code("calibrant predict runs/first --data images --out runs/first/predictions/test.parquet", language="bash")
        return
    choice = _controls(shelf, runs)
    sides = _sides(choice)
    _numbers(choice, sides)
    picked = _diagrams(choice, sides)
    samples.render(
        shelf, choice.run, choice.predictions, sides, choice.selection, choice.bins, picked, uniform=choice.uniform
    )


def _controls(shelf: Shelf, runs: list[Run]) -> Choice:
    first, second, third = st.columns([4, 3, 4])
    with first:
        name = controls.choose("Run", [r.name for r in runs], key="run", help="A folder with predictions.")
    run = next(r for r in runs if r.name == name)
    best = run.best()
    with second:
        chosen = controls.choose(
            "Predictions", [p.name for p in run.predictions], key="predictions",
            default=None if best is None else best.name, help="Which of the run's prediction files to look at.",
        )  # fmt: skip
    predictions = next(p for p in run.predictions if p.name == chosen)
    found = shelf.calibrators_for(run, predictions)
    with third:
        calibrator_name = controls.choose(
            "After calibration with", [*(c.name for c in found), NO_CALIBRATOR], key="calibrator",
            labels={NO_CALIBRATOR: "nothing: show it as it is"} | {c.name: _calibrator_label(c) for c in found},
            help="Calibrators in the run's folder or beside it. Fit one with calibrant calibrate.",
        )  # fmt: skip
    calibrator = next((c for c in found if c.name == calibrator_name), None)
    fourth, kind, fifth, sixth = st.columns([4, 3, 4, 4], vertical_alignment="bottom")
    with fourth:
        bins = controls.slide(
            "Bins", 1, 100, key="bins", default=measures.DEFAULT_BINS,
            help="Confidence is cut into so many parts of equal width. 15 is what papers report.",
        )  # fmt: skip
    can_mass = measures.has_rows(Scored.of(predictions))
    with kind:
        options = ["width", "mass"] if can_mass else ["width"]
        of = controls.choose_one_of_few(
            "Bins of equal", options, key="of", labels={"width": "width", "mass": "rows"},
            help="Equal width is the usual ECE. With equal numbers of rows every bin is equally sure: the adaptive ECE"
            + ("." if can_mass else "; it is drawn for up to 100,000 rows."),
        )  # fmt: skip
    choices = selections(predictions.source)
    with fifth:
        rows = controls.choose(
            "Rows", [s.key for s in choices], key="rows", labels={s.key: s.label for s in choices},
            help="Chosen by what the model predicted. By the true class even a perfect model would look wrong. Head, "
            "medium and tail are thirds of the classes by their number of training images.",
        )  # fmt: skip
    selection = next(s for s in choices if s.key == rows)
    mass = of == "mass" and selection.classes is None
    if of == "mass" and selection.classes is not None:
        st.markdown("Rows of some classes only are shown in bins of equal width.")
    with sixth:
        uniform = controls.switch(
            "As if all classes were equally common", key="uniform", disabled=selection.classes is not None,
            help="Weighs each row so that every class counts the same: the numbers under a uniform class prior. "
            "Works for all rows together.",
        )  # fmt: skip
    return Choice(run, predictions, calibrator, bins, selection, uniform and selection.classes is None, mass)


def _calibrator_label(ref: CalibratorRef) -> str:
    temperature = ref.calibrator.parameters.get("temperature")
    what = f"T = {temperature:.3f}" if isinstance(temperature, float) else ref.calibrator.method
    return f"{ref.name} ({what})"


def _sides(choice: Choice) -> list[Side]:
    def side(key: str, title: str, calibrator: CalibratorRef | None) -> Side:
        scored = Scored.of(choice.predictions, calibrator)
        if choice.mass:
            return Side(key, title, scored, measures.mass_diagram(scored, choice.bins, uniform=choice.uniform))
        diagram = measures.diagram(scored, choice.bins, uniform=choice.uniform, predicted=choice.selection.classes)
        return Side(key, title, scored, diagram)

    before = side("before", "Before: as the network says", None)
    if choice.calibrator is None:
        return [before]
    return [before, side("after", f"After: {choice.calibrator.calibrator.method}", choice.calibrator)]


# ---- numbers ----


def _numbers(choice: Choice, sides: list[Side]) -> None:
    if choice.selection.classes is not None:
        _selection_numbers(choice, sides)
        return
    found = measures.summary(
        sides[0].scored, sides[1].scored if len(sides) > 1 else None, bins=choice.bins, uniform=choice.uniform
    )
    measure = measures.mass_error if choice.mass else measures.calibration_error
    errors = [measure(side.scored, choice.bins, uniform=choice.uniform) for side in sides]
    name = "Adaptive ECE" if choice.mass else "ECE"
    columns = st.columns(4)
    with columns[0]:
        st.metric("Accuracy", show.percent(found.accuracy.value), help="Share of rows whose first guess is right.")
        weighted = f", worth {show.count(round(found.effective_rows))} after weighting" if choice.uniform else ""
        st.markdown(f"{_interval(found.accuracy)}; {show.count(found.rows)} rows{weighted}")
    for column, side, error in zip(columns[1:], sides, errors, strict=False):
        with column:
            _error_metric(f"{name} {side.key}" if len(sides) > 1 else name, error)
    with columns[3 if len(sides) > 1 else 2]:
        both = [found.nll] if found.nll_after is None else [found.nll, found.nll_after]
        st.metric(
            "NLL before → after" if len(sides) > 1 else "NLL", " → ".join(f"{value:.4f}" for value in both),
            help="Negative log-likelihood, natural logarithm; lower is better. Its interval stands under All numbers.",
        )  # fmt: skip
        st.markdown("Negative log-likelihood; lower is better")


def _error_metric(label: str, error: Measured) -> None:
    st.metric(
        label, show.percent(error.value),
        help="Expected calibration error: the average distance between what the model claims and how often it is "
        "right. Chance alone makes it positive: a perfectly calibrated model with as many rows shows the value under "
        "'chance alone'. The interval is that of the true error, freed of chance, so it may lie below the number.",
    )  # fmt: skip
    # Observed ECE is biased upwards and can lie above the interval of the true one: the words must say which is which.
    st.markdown(f"True value {_interval(error)}; chance alone {show.percent(error.null)}")


def _interval(m: Measured) -> str:
    return "" if m.low is None else f"(95 %) {100 * m.low:.2f} – {show.percent(m.high)}"


def _selection_numbers(choice: Choice, sides: list[Side]) -> None:
    """Of the rows that were predicted as a class or group."""
    columns = st.columns(4)
    for column, side in zip(columns[::2], sides, strict=False):
        shown = measures.selection(side.scored, choice.bins, choice.selection.classes or ())
        with column:
            st.metric(
                f"Right when predicted, {side.key}" if len(sides) > 1 else "Right when predicted",
                show.percent(shown.precision),
                help="Share of the rows with this prediction whose label agrees (precision).",
            )  # fmt: skip
            st.markdown(f"{show.count(shown.rows)} rows")
        with columns[columns.index(column) + 1]:
            if shown.ece is None:
                st.metric(f"ECE {side.key}" if len(sides) > 1 else "ECE", "–")
            else:
                _error_metric(f"ECE {side.key}" if len(sides) > 1 else "ECE", shown.ece)


# ---- diagrams ----


def table_of(diagram: ReliabilityDiagram) -> pd.DataFrame:
    """The bins that hold rows, numbered from 1."""
    filled = diagram.filled
    table = pd.DataFrame({
        "bin": range(1, len(filled) + 1), "low": diagram.low, "high": diagram.high, "rows": diagram.rows,
        "share": diagram.share, "confidence": diagram.confidence, "accuracy": diagram.accuracy, "gap": diagram.gap,
        "accuracy_low": diagram.accuracy_low, "accuracy_high": diagram.accuracy_high,
        "band_low": diagram.band_low, "band_high": diagram.band_high,
    })[filled]  # fmt: skip
    table["verdict"] = ["over-confident" if g > 0 else "under-confident" for g in table["gap"]]
    return table.reset_index(drop=True)


def _diagrams(choice: Choice, sides: list[Side]) -> tuple[str, int] | None:
    tables = [table_of(side.diagram) for side in sides]
    if all(table.empty for table in tables):
        st.info("No row was predicted like this.", icon=":material/info:")
        return None
    spreads = [_spread(choice, side) for side in sides] if choice.mass else tables
    top = max(float(table["share"].max()) for table in spreads if not table.empty) * 1.05
    columns = st.columns(2)
    for column, side, table in zip(columns, sides, tables, strict=False):
        with column:
            _draw(choice, side, table, top)
    with columns[1] if len(sides) == 1 else st.container():
        _explain()
    return None if choice.mass else _picked_bin(sides, tables)


def _draw(choice: Choice, side: Side, table: pd.DataFrame, top: float) -> None:
    name = f"reliability-{choice.run.name}-{choice.predictions.name}-{side.key}"
    if table.empty:
        st.info(f"{side.title}: no row was predicted like this.", icon=":material/info:")
        return
    event = show.drawing(
        charts.reliability(table, colours=show.colours(), title=side.title, edges=not choice.mass),
        alt=f"Reliability diagram, {side.title}", key=f"diagram-{side.key}", select=None if choice.mass else "bin",
    )  # fmt: skip
    spread = _spread(choice, side) if choice.mass else table
    show.drawing(
        charts.histogram(spread, colours=show.colours(), top=top), alt=f"Confidence histogram, {side.title}",
        key=f"histogram-{side.key}",
    )  # fmt: skip
    downloads.offer(
        name,
        table,
        partial(charts.reliability_with_histogram, table, spread, title=side.title, top=top, edges=not choice.mass),
    )
    halves = measures.over_under(side.scored, choice.bins, uniform=choice.uniform)
    if choice.selection.classes is None:
        st.markdown(
            f"Over-confident part of ECE {show.percent(halves.over)}, under-confident {show.percent(halves.under)}."
        )
    if not choice.mass:
        _remember_click(side, event)


def _spread(choice: Choice, side: Side) -> pd.DataFrame:
    """Bins of equal width, for the histogram: those of equal mass are all equally high."""
    return table_of(measures.diagram(side.scored, choice.bins, uniform=choice.uniform))


def _explain() -> None:
    st.markdown(
        "Each mark is a bin of confidence; its area grows with the share of the rows in it. On the dashed line the "
        "model is right exactly as often as it claims. :orange[Circles below the line] claim too much, "
        ":blue[diamonds above it] too little. Inside the grey band the distance is what chance explains. The bars "
        "show how the rows spread over confidence."
    )


# ---- which bin ----


def _remember_click(side: Side, event: Any) -> None:
    """A click on a mark sets the bin; the same click must not win again when another control is moved."""
    points = event.selection.get("bin", []) if event is not None else []
    clicked = f"{side.key}-{int(points[0]['bin'])}" if points else None
    seen = f"click:{side.key}"
    if clicked != st.session_state.get(seen):
        st.session_state[seen] = clicked
        if clicked is not None:
            st.session_state["bin"] = clicked


def _picked_bin(sides: list[Side], tables: list[pd.DataFrame]) -> tuple[str, int] | None:
    labels = {"none": "none"}
    for side, table in zip(sides, tables, strict=True):
        for number, low, high, rows in table[["bin", "low", "high", "rows"]].itertuples(index=False, name=None):
            labels[f"{side.key}-{number}"] = f"{side.key}: {100 * low:.1f}–{100 * high:.1f} %, {rows:,} rows"
    chosen = controls.choose(
        "Rows of one bin", list(labels), key="bin", labels=labels, help="Or click a mark in a diagram."
    )
    if chosen == "none":
        return None
    key, _, bin_number = chosen.partition("-")
    return key, int(bin_number)
