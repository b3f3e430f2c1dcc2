"""Reliability: does the model mean what it claims? Before and after calibration, down to the pictures of a bin."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calibrant.calibration.intervals.measured import Measured
from calibrant.dashboard.folder.artifacts import CalibratorRef, PredictionsRef, Run, Shelf
from calibrant.dashboard.numbers import class_prior, measures
from calibrant.dashboard.numbers.groups import Selection, selections
from calibrant.dashboard.numbers.measures import Kind, Target
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views import diagrams, samples
from calibrant.dashboard.views.diagrams import Side
from calibrant.dashboard.widgets import controls, elements

NO_CALIBRATOR = "none"
_KINDS = {"width": "equal width", "mass": "equal rows", "smooth": "smooth"}
_ERRORS: dict[Kind, str] = {"width": "ECE", "mass": "Adaptive ECE", "smooth": "Smooth ECE"}


@dataclass(frozen=True)
class Choice:
    run: Run
    predictions: PredictionsRef
    calibrator: CalibratorRef | None
    bins: int
    kind: Kind
    selection: Selection
    target: Target

    @property
    def about(self) -> str:
        """What the number of a bin depends on."""
        calibrator = NO_CALIBRATOR if self.calibrator is None else self.calibrator.name
        parts = (self.run.name, self.predictions.name, calibrator, self.bins, self.kind, self.selection.key)
        return "|".join(map(str, parts))


def render(shelf: Shelf) -> None:
    st.title("Reliability")
    runs = [run for run in shelf.runs if run.predictions]
    if not runs:
        elements.troubles(shelf.troubles)
        st.info("No predictions here yet. Training writes them, and so does:", icon=":material/info:")
        run = shlex.quote(shelf.runs[0].name) if shelf.runs else "first"
        elements.command(shelf.root, f"calibrant predict {run} --data images --out {run}/predictions/test.parquet")
        return
    choice = _controls(shelf, runs)
    sides = _sides(choice)
    waiting = _numbers(choice, sides)
    picked = diagrams.render(
        sides, name=f"{choice.run.name}-{choice.predictions.name}", bins=choice.bins, about=choice.about
    )
    for place, side in waiting:  # the numbers stand there already; their intervals take longer than all else
        with place:
            _true_value(measures.calibration_error(side.scored, choice.bins, kind="smooth", target=choice.target))
    samples.render(
        shelf,
        choice.run,
        choice.predictions,
        sides,
        choice.selection,
        choice.bins,
        picked,
        mass=choice.kind == "mass",
        target=choice.target,
        about=choice.about,
    )


def _controls(shelf: Shelf, runs: list[Run]) -> Choice:
    first, second, third = st.columns([4, 3, 4])
    with first:
        name = controls.choose("Run", [r.name for r in runs], key="run", help="A folder with predictions.")
    run = next(r for r in runs if r.name == name)
    best = run.best()
    with second:
        chosen = controls.choose(
            "Predictions",
            [p.name for p in run.predictions],
            key="predictions",
            default=None if best is None else best.name,
            about=run.name,
            help="Which of the run's prediction files to look at.",
        )
    predictions = next(p for p in run.predictions if p.name == chosen)
    found = shelf.calibrators_for(run, predictions)
    with third:
        calibrator_name = controls.choose(
            "After calibration with",
            [*(c.name for c in found), NO_CALIBRATOR],
            key="calibrator",
            labels={NO_CALIBRATOR: "nothing: show it as it is"} | {c.name: _calibrator_label(c) for c in found},
            about=f"{run.name}: {len(predictions.source.class_names)}",
            help="Calibrators in the run's folder or beside it. Fit one with calibrant calibrate.",
        )
    calibrator = next((c for c in found if c.name == calibrator_name), None)
    fourth, kind, fifth, sixth = st.columns([3, 4, 4, 4])
    with fourth:
        bins = controls.slide(
            "Bins",
            1,
            100,
            key="bins",
            default=measures.DEFAULT_BINS,
            help="Confidence is cut into so many parts of equal width. 15 is what papers report.",
        )
    with kind:
        of = controls.choose_one_of_few(
            "Diagram",
            list(_KINDS),
            key="of",
            labels=_KINDS,
            help="Bins of equal width give the usual ECE (expected calibration error). With equal numbers of rows "
            "every bin is equally sure: the adaptive ECE. Smooth needs no bins: a curve whose bandwidth SmoothECE "
            "chooses; the bins then only divide the histogram.",
        )
    choices = selections(predictions.source)
    with fifth:
        rows = controls.choose(
            "Rows",
            [s.key for s in choices],
            key="rows",
            labels={s.key: s.label for s in choices},
            about="|".join(predictions.source.class_names),
            help="Chosen by what the model predicted. By the true class even a perfect model would look wrong. Head, "
            "medium and tail are thirds of the classes by their number of training images.",
        )
    selection = next(s for s in choices if s.key == rows)
    with sixth:
        wanted = class_prior.control(shelf, predictions, disabled=selection.classes is not None)
    return Choice(run, predictions, calibrator, bins, cast(Kind, of), selection, wanted)


def _calibrator_label(ref: CalibratorRef) -> str:
    temperature = ref.calibrator.parameters.get("temperature")
    what = f"T = {temperature:.3f}" if isinstance(temperature, float) else ref.calibrator.method
    return f"{ref.name} ({what})"


def _sides(choice: Choice) -> list[Side]:
    def side(key: str, title: str, calibrator: CalibratorRef | None) -> Side:
        scored = Scored.of(choice.predictions, calibrator)
        classes = choice.selection.classes
        bars = measures.diagram(scored, choice.bins, target=choice.target, predicted=classes)
        if choice.kind == "smooth":
            drawn = measures.curve(scored, target=choice.target, predicted=classes) if bars.rows.sum() else None
            return Side(key, title, scored, "smooth", bars, bars, drawn)
        marks = bars
        if choice.kind == "mass" and bars.rows.sum():
            marks = measures.diagram(scored, choice.bins, kind="mass", target=choice.target, predicted=classes)
        return Side(key, title, scored, choice.kind, marks, bars, None)

    before = side("before", "Before: as the network says", None)
    if choice.calibrator is None:
        return [before]
    return [before, side("after", f"After: {choice.calibrator.calibrator.method}", choice.calibrator)]


# ---- numbers ----


def _numbers(choice: Choice, sides: list[Side]) -> list[tuple[DeltaGenerator, Side]]:
    """Gives the places where the interval of a smooth error is to stand, once everything else is drawn."""
    if choice.selection.classes is not None:
        _selection_numbers(choice, sides)
        return []
    found = measures.summary(
        sides[0].scored, sides[1].scored if len(sides) > 1 else None, bins=choice.bins, target=choice.target
    )
    name = _ERRORS[choice.kind]
    exact = choice.kind != "mass" or measures.statistics(sides[0].scored).exact_rows
    columns = st.columns(4)
    with columns[0]:
        st.metric("Accuracy", elements.percent(found.accuracy.value), help="Share of rows whose first guess is right.")
        weighted = f", worth {elements.count(round(found.effective_rows))} after weighting" if choice.target else ""
        st.markdown(f"{_interval(found.accuracy)}; {elements.count(found.rows)} rows{weighted}")
    waiting = []
    for column, side in zip(columns[1:], sides, strict=False):
        with column:
            label = f"{name} {side.key}" if len(sides) > 1 else name
            if side.curve is not None:
                _error_value(label, side.curve.value)
                waiting.append((st.empty(), side))
            else:
                _error_metric(
                    label, measures.calibration_error(side.scored, choice.bins, kind=choice.kind, target=choice.target)
                )
    with columns[3 if len(sides) > 1 else 2]:
        both = [found.nll] if found.nll_after is None else [found.nll, found.nll_after]
        st.metric(
            "NLL before → after" if len(sides) > 1 else "NLL",
            " → ".join(f"{value:.4f}" for value in both),
            help="Negative log-likelihood, natural logarithm; lower is better. Its interval stands under All numbers.",
        )
        st.markdown("Negative log-likelihood; lower is better")
    parts = [measures.over_under(side.scored, choice.bins, kind=choice.kind, target=choice.target) for side in sides]
    st.markdown(
        f"{name}, over-confident part + under-confident part: "
        + "; ".join(
            f"{side.key} **{elements.percent(half.over)}** + **{elements.percent(half.under)}**"
            for side, half in zip(sides, parts, strict=True)
        )
        + "."
        + ("" if exact else " More than 100,000 rows: bins of equal mass are cut through cells of confidence.")
    )
    return waiting


def _error_metric(label: str, error: Measured) -> None:
    _error_value(label, error.value)
    _true_value(error)


def _error_value(label: str, value: float) -> None:
    st.metric(
        label,
        elements.percent(value),
        help="Expected calibration error: the average distance between what the model claims and how often it is "
        "right. Chance makes it positive: a calibrated model with as many rows shows the value after "
        "'if calibrated'. The interval is that of the true error, freed of chance, so it may lie below the number.",
    )


def _true_value(error: Measured) -> None:
    # Observed ECE is biased upwards and can lie above the interval of the true one: the words must say which is which.
    if error.low is None:
        st.markdown("No interval: it is worked out for all rows only.")
    else:
        st.markdown(f"True value {_interval(error)}; if calibrated {elements.percent(error.null)}")


def _interval(m: Measured) -> str:
    return "" if m.low is None else f"(95 %) {100 * m.low:.2f} – {elements.percent(m.high)}"


def _selection_numbers(choice: Choice, sides: list[Side]) -> None:
    """Of the rows that were predicted as a class or group."""
    name = _ERRORS[choice.kind]
    columns = st.columns(4)
    for column, side in zip(columns[::2], sides, strict=False):
        shown = measures.selection(side.scored, choice.bins, choice.selection.classes or (), kind=choice.kind)
        with column:
            st.metric(
                f"Right when predicted, {side.key}" if len(sides) > 1 else "Right when predicted",
                elements.percent(shown.precision),
                help="Share of the rows with this prediction whose label agrees (precision).",
            )
            st.markdown(f"{elements.count(shown.rows)} rows")
        with columns[columns.index(column) + 1]:
            if shown.ece is None:
                st.metric(f"{name} {side.key}" if len(sides) > 1 else name, "–")
            else:
                _error_metric(f"{name} {side.key}" if len(sides) > 1 else name, shown.ece)
