"""Reliability: does the model mean what it claims? Before and after calibration, down to the pictures of a bin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from calibrant.calibration.intervals.measured import Measured
from calibrant.dashboard.folder.artifacts import CalibratorRef, FolderIndex, Model, PredictionsRef, Run
from calibrant.dashboard.numbers import class_prior, measures, verdicts
from calibrant.dashboard.numbers.groups import ALL, Selection, selections
from calibrant.dashboard.numbers.measures import Kind, Target
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views import diagrams, labels, samples, subject, verdict
from calibrant.dashboard.views.diagrams import Side
from calibrant.dashboard.widgets import controls, elements, level

_KINDS = {"width": "equal width", "mass": "equal rows", "smooth": "smooth"}
_ERRORS: dict[Kind, str] = {"width": "ECE", "mass": "Adaptive ECE", "smooth": "Smooth ECE"}


@dataclass(frozen=True)
class Choice:
    """A subject (a run through a calibrator, or a deployed file), and how it is looked at."""

    owner: Run | Model
    run: Run
    predictions: PredictionsRef
    through: CalibratorRef | Model | None
    bins: int = measures.DEFAULT_BINS
    kind: Kind = "width"
    selection: Selection = Selection(ALL, "All rows", None)
    target: Target = None

    @property
    def scored(self) -> Scored:
        return Scored.of(self.predictions, self.through)

    @property
    def about(self) -> str:
        """What the number of a bin depends on."""
        through = "" if self.through is None else self.through.name
        parts = (self.owner.name, self.predictions.name, through, self.bins, self.kind, self.selection.key)
        return "|".join(map(str, parts))

    @property
    def looked_at(self) -> samples.Look:
        return samples.Look(self.selection, self.bins, self.kind == "mass", self.target, self.about)


def render(folder_index: FolderIndex) -> None:
    elements.title("Reliability")
    chosen = subject.choose(folder_index, labels=True)
    if chosen is None:
        return
    if chosen.predictions.source.independent:
        labels.render(chosen)
        return
    choice = Choice(chosen.owner, chosen.run, chosen.predictions, chosen.through)
    with st.container(border=True, key="verdict"):
        first_words = st.empty()
    if (asked := verdicts.known(choice.scored)) is None:
        with first_words.container():
            level.badge(None)
            st.markdown("Trying what would help, on these rows.")
    else:
        _say(first_words, folder_index, choice)
    choice = _more_controls(folder_index, choice)
    sides = _sides(choice)
    picked = diagrams.render(
        sides,
        name=f"{choice.owner.name}-{choice.predictions.name}",
        bins=choice.bins,
        about=choice.about,
        beside=partial(samples.beside, folder_index, choice.run, choice.predictions, sides, choice.looked_at),
    )
    waiting = _numbers(choice, sides)
    for place, side in waiting:  # the numbers stand there already; their intervals take longer than all else
        with place:
            _true_value(measures.calibration_error(side.scored, choice.bins, kind="smooth", target=choice.target))
    if asked is None:
        _say(first_words, folder_index, choice)
    samples.render(folder_index, choice.run, choice.predictions, sides, picked, choice.looked_at)


def _say(place: DeltaGenerator, folder_index: FolderIndex, choice: Choice) -> None:
    with place.container():
        verdict.render(folder_index, choice.run, choice.predictions, choice.scored)


def _more_controls(folder_index: FolderIndex, choice: Choice) -> Choice:
    """How it is looked at."""
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
    choices = selections(choice.predictions.source)
    with fifth:
        rows = controls.choose(
            "Rows",
            [s.key for s in choices],
            key="rows",
            labels={s.key: s.label for s in choices},
            about="|".join(choice.predictions.source.class_names),
            help="Chosen by what the model predicted. By the true class even a perfect model would look wrong. Head, "
            "medium and tail are thirds of the classes by their number of training images.",
        )
    selection = next(s for s in choices if s.key == rows)
    with sixth:
        wanted = class_prior.control(folder_index, choice.predictions, disabled=selection.classes is not None)
    return replace(choice, bins=bins, kind=cast(Kind, of), selection=selection, target=wanted)


def _sides(choice: Choice) -> list[Side]:
    def side(key: str, title: str, scored: Scored) -> Side:
        classes = choice.selection.classes
        bars = measures.diagram(scored, choice.bins, target=choice.target, predicted=classes)
        if choice.kind == "smooth":
            drawn = measures.curve(scored, target=choice.target, predicted=classes) if bars.rows.sum() else None
            return Side(key, title, scored, "smooth", bars, bars, drawn)
        marks = bars
        if choice.kind == "mass" and bars.rows.sum():
            marks = measures.diagram(scored, choice.bins, kind="mass", target=choice.target, predicted=classes)
        return Side(key, title, scored, choice.kind, marks, bars, None)

    before = side("before", "Before: as the network says", choice.scored.plain())
    if choice.through is None:
        return [before]
    return [before, side("after", f"After: {choice.scored.formula().describe()}", choice.scored)]


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
    if error.withheld is not None:
        st.markdown(f"No interval: {error.withheld}.")
    elif error.low is None:
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
