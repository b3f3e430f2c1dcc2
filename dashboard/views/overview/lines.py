"""A line for each thing that can be deployed: its numbers, its verdict, and the table and the scatter made of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import metric
from calibrant.calibration.verdict.verdict import WORDS, Level
from calibrant.dashboard.draw import charts
from calibrant.dashboard.folder.artifacts import Model, Run
from calibrant.dashboard.folder.contents import read_log
from calibrant.dashboard.folder.files import Trouble
from calibrant.dashboard.numbers import measures, verdicts
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.numbers.subjects import Subject
from calibrant.dashboard.widgets import controls, elements, level
from calibrant.dashboard.widgets.go import go
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError

_PATIENCE = 1.0  # seconds, after which the page says how far it is
_NUMBERS = {
    "Accuracy (%)": metric("accuracy").help,
    "Balanced accuracy (%)": metric("balanced_accuracy").help,
    "ECE before (%)": f"Of the network alone. {metric('ece').help}",
    "ECE (%)": "Through the formula: calibrator and prior correction",
    "True ECE from (%)": "Lower end of the 95 % interval of the true ECE",
    "to (%)": "Upper end of that interval",
    "ECE if calibrated (%)": "What a calibrated model shows on as many rows, by chance",
    "NLL before": f"Of the network alone. {metric('nll').help}",
    "NLL": "Through the formula",
    "T": "Temperature of the calibrator; above 1: the network was over-confident",
    "Rows": "Labelled rows by which it is judged",
    "Size (MB)": "The weights, or the file",
    "Epochs": "Passes over the training images",
    "Images/s": "Measured when the file was made, on the machine that made it",
}


@dataclass(frozen=True)
class Line:
    subject: Subject
    summary: Summary | None

    @property
    def level(self) -> Level | None:
        scored = self.subject.scored
        found = None if scored is None else verdicts.known(scored)
        return None if found is None else found.level

    @property
    def words(self) -> str:
        """Everything that a search looks at."""
        facts = [value for value in self.subject.facts.values() if value]
        return " ".join([self.subject.name, self.subject.formula, *facts]).lower()

    def place(self, by: str) -> tuple[Any, ...]:
        """Where it stands in that order; what is not known stands last."""
        name, s = (self.subject.name, self.subject.key), self.summary
        if by == "verdict":
            return (-level.rank(self.level) if self.level else 1, 1.0 if s is None else _ece(s), *name)
        if by == "name" or s is None:
            return (s is None and by != "name", *name)
        if by == "date":
            return (False, [-ord(c) for c in self.subject.facts["date"] or " "], *name)
        return (False, {"ece": _ece(s), "accuracy": -s.accuracy.value, "nll": _nll(s)}[by], *name)

    def group(self, by: str) -> str:
        if by == "verdict":
            return "being judged" if self.level is None else WORDS[self.level]
        return self.subject.facts.get(by) or "not known"

    def open(self) -> None:
        """Its first screen."""
        values = {"run": self.subject.name}
        if self.subject.predictions is not None:
            values["predictions"] = self.subject.predictions.name
        if isinstance(self.subject.owner, Run):
            through = self.subject.through
            values["calibrator"] = "none" if through is None else through.name
        go("reliability", values)


def _ece(s: Summary) -> float:
    return (s.ece_after or s.ece).value


def _nll(s: Summary) -> float:
    return s.nll if s.nll_after is None else s.nll_after


def measured(found: Sequence[Subject], troubles: list[Trouble]) -> list[Line]:
    """Lines with numbers; what cannot be measured becomes a trouble."""
    lines = []
    place, begun = st.empty(), time.monotonic()
    for n, subject in enumerate(found):
        if time.monotonic() - begun > _PATIENCE:
            place.progress(
                n / len(found), text=f"Measured {n} of {len(found)}: {plain(short(subject.name, 60))} is next"
            )
        summary = None
        try:
            if (scored := subject.scored) is not None:
                summary = measures.summary(scored.plain(), None if scored.through is None else scored)
        except CalibrantError as error:
            troubles.append(Trouble(f"{subject.name}, {subject.formula}", error.what, error.fix or ""))
        lines.append(Line(subject, summary))
    place.empty()
    return lines


def by_group(lines: Sequence[Line], grouped: str) -> list[Line]:
    """In the order that they have, but each group's together."""
    places = {name: k for k, name in enumerate(dict.fromkeys(line.group(grouped) for line in lines))}
    return sorted(lines, key=lambda line: places[line.group(grouped)])


def cells(line: Line) -> dict[str, Any]:
    """What the table holds of it."""
    facts, s, predictions = line.subject.facts, line.summary, line.subject.predictions
    found: dict[str, Any] = {
        "Name": line.subject.name,
        "Formula": line.subject.formula,
        "Verdict": None if line.level is None else WORDS[line.level],
        "Predictions": None if predictions is None else predictions.name,
    }
    if s is not None:
        last = s.ece_after or s.ece
        found |= {
            "Rows": s.rows, "Accuracy (%)": 100 * s.accuracy.value, "ECE before (%)": 100 * s.ece.value,
            "ECE (%)": 100 * last.value, "True ECE from (%)": _hundred(last.low), "to (%)": _hundred(last.high),
            "ECE if calibrated (%)": _hundred(last.null), "NLL before": s.nll, "NLL": _nll(s),
            "Balanced accuracy (%)": 100 * s.balanced_accuracy, "T": s.temperature,
        }  # fmt: skip
    found |= {name.capitalize(): value for name, value in facts.items()}
    return found | {"Size (MB)": _size(line.subject.owner), "Epochs": _epochs(line.subject.owner)} | _speed(line)


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _size(owner: Run | Model) -> float | None:
    if isinstance(owner, Model):
        return owner.size / 1e6
    try:
        return (owner.path / "model.safetensors").stat().st_size / 1e6
    except OSError:
        return None


def _epochs(owner: Run | Model) -> int | None:
    log: Path | None = None if isinstance(owner, Model) else owner.metrics
    return None if log is None else max((e for r in read_log(log) if isinstance(e := r.get("epoch"), int)), default=0)


def _speed(line: Line) -> dict[str, float | None]:
    if not isinstance(line.subject.owner, Model):
        return {}
    value = line.subject.owner.card.metrics.get("images_per_second")
    return {"Images/s": float(value) if isinstance(value, int | float) else None}


def frame(lines: Sequence[Line]) -> pd.DataFrame:
    found = pd.DataFrame([cells(line) for line in lines])
    always = ("Name", "Formula", "Verdict", "Rows")
    return found[[c for c in found if c in always or found[c].notna().any()]]


def table(lines: Sequence[Line], grouped: str) -> None:
    """All numbers; a click on a line opens it. Groups stand together, and what makes them beside the name."""
    lines = lines if grouped == "none" else by_group(lines, grouped)
    shown = frame(lines)
    if (column := grouped.capitalize()) in shown:
        shown.insert(1, column, shown.pop(column))
    form = {"T": "%.3f", "NLL": "%.4f", "NLL before": "%.4f", "Rows": "localized", "Epochs": "localized"}
    columns: dict[str, Any] = {"Name": st.column_config.TextColumn(pinned=True)}
    columns |= {
        name: st.column_config.NumberColumn(format=form.get(name, "%.2f"), help=_NUMBERS[name])
        for name in shown
        if name in _NUMBERS
    }
    chosen = elements.table(shown, key="runs-table", download="runs", columns=columns, select=True)
    if chosen is not None:
        lines[chosen].open()


def scatter(lines: Sequence[Line]) -> None:
    """Any two numbers against each other; a click on a mark opens it."""
    shown = frame(lines)
    names = [c for c in shown if c in _NUMBERS and shown[c].notna().sum() > 0]
    left, right = st.columns(2)
    with left:
        x = controls.choose("Across", names, key="across", default="Accuracy (%)")
    with right:
        y = controls.choose("Up", names, key="up", default="ECE (%)")
    drawn = shown.assign(Verdict=shown["Verdict"].fillna("not judged"), line=range(len(shown)))
    drawn = drawn.dropna(subset=[x, y])
    event = elements.drawing(
        partial(charts.scatter, drawn, x=x, y=y)(colours=elements.colours()),
        alt=f"{y} against {x}",
        key="chart-scatter",
        select="line",
    )
    points = [] if event is None else event.selection.get("line", [])
    if points and st.session_state.get("opened line") != points[0]:
        st.session_state["opened line"] = points[0]
        lines[int(points[0]["line"])].open()
