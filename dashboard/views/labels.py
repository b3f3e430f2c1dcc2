"""Independent labels on the Reliability page: each is there or not by itself, and each has a probability of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.independent.files import LabelsModel
from calibrant.calibration.independent.measure import LabelFigures
from calibrant.calibration.independent.report import TITLES, WORDS, verdict_line
from calibrant.calibration.verdict.verdict import LEVELS
from calibrant.dashboard.draw import diagrams
from calibrant.dashboard.numbers import labels, measures
from calibrant.dashboard.views.diagrams import table_of
from calibrant.dashboard.views.subject import Chosen
from calibrant.dashboard.widgets import controls, elements, level
from calibrant.dashboard.widgets.markdown_escape import plain, short

_SIDES = ("before", "after")
_HELP = {
    "ece": "Expected calibration error: the average distance between the probability of a label and the share of rows "
    "that have it. Chance makes it positive: beside it stands what a calibrated model would show.",
    "nll": "Negative log-likelihood of there or not there, natural logarithm; lower is better.",
    "brier": "Mean square of the probability's distance from 1 where the label is there, from 0 where not.",
    "auroc": "Chance that a row with the label has a higher probability than a row without it; 0.5 is guessing.",
}


def render(chosen: Chosen) -> None:
    first, second = st.columns([4, 7])
    with first:
        bins = controls.slide(
            "Bins",
            1,
            100,
            key="bins",
            default=measures.DEFAULT_BINS,
            help="The probability of a label is cut into so many parts of equal width.",
        )
    with st.spinner("Measuring each label"):
        models = labels.measured(chosen.scored, bins)
    with st.container(border=True, key="verdict"):
        _verdict(models)
    _numbers(models)
    worst = labels.worst_first(models[-1])
    with second:
        name = controls.choose(
            "Label",
            [x.name for x in worst],
            key="label",
            about=f"{chosen.run.name}|{chosen.predictions.name}",
            help="The one with the largest error comes first.",
        )
    columns = st.columns(2)
    for column, model, side in zip(columns, models, _SIDES, strict=False):
        with column:
            _diagram(next(x for x in model.evaluation.labels if x.name == name), side)
    st.markdown(
        "A circle: the label is claimed more often than it is there. A diamond: less often. A square lies within what "
        "chance explains."
    )
    _table(worst)


def _verdict(models: Sequence[LabelsModel]) -> None:
    """The last one is what is used; the one before says whether its calibrator helped."""
    say(models[-1])
    if len(models) > 1:
        before, after = (m.evaluation.mean["nll"].value for m in models)
        word = "Yes" if after < before else "No"
        st.markdown(
            f"**Did it help?** {word}: the mean NLL of the labels {before:.4f} → {after:.4f}"
            + (", on the very rows that it was fitted on." if models[-1].in_sample else ".")
        )


def say(model: LabelsModel) -> None:
    """How many labels are of which level, and the sentence that `calibrant evaluate` says first."""
    found = model.evaluation
    with st.container(horizontal=True, gap="small"):
        for one in LEVELS:
            if names := found.of_level(one):
                icon, colour = level.SHAPES[one]
                st.badge(f"{len(names)} of {len(found.labels)}: {WORDS[one]}", icon=icon, color=colour)
    st.markdown(f"**{plain(verdict_line(model))}**")


def _numbers(models: Sequence[LabelsModel]) -> None:
    """Means over the labels, as `calibrant evaluate` has them."""
    shown = (("ece", 100, 2, " %"), ("nll", 1, 4, ""), ("brier", 1, 4, ""), ("auroc", 1, 4, ""))
    for column, (key, times, digits, unit) in zip(st.columns(len(shown)), shown, strict=True):
        found = [m.evaluation.mean.get(key) for m in models]
        values = [f"{times * m.value:.{digits}f}" if m is not None else "–" for m in found]
        with column:
            st.metric(f"{TITLES[key]}, mean of labels", " → ".join(values) + unit, help=_HELP[key])
            if (last := found[-1]) is not None and last.low is not None and last.high is not None:
                null = "" if last.null is None else f"; if calibrated {times * last.null:.{digits}f}{unit}"
                span = f"{times * last.low:.{digits}f} – {times * last.high:.{digits}f}{unit}"
                st.markdown(f"True value (95 %) {span}{null}" if key == "ece" else f"(95 %) {span}{null}")


def _diagram(label: LabelFigures, side: str) -> None:
    if not label.rows:
        st.markdown("Of no row it is known whether it has this label.")
        return
    table = table_of(labels.diagram(label))
    error = label.metrics["ece"]
    title = f"{side.capitalize()}: {short(label.name, 40)}, ECE {elements.percent(error.value)}"
    elements.chart(
        f"label-{side}",
        table,
        partial(diagrams.reliability, table, title=title, terms=diagrams.OF_A_LABEL),
        alt=f"Reliability diagram of the label {label.name}, {side}",
        key=f"label-diagram-{side}",
    )


def _table(worst: list[LabelFigures]) -> None:
    number = st.column_config.NumberColumn
    columns: dict[str, Any] = {
        "Label": st.column_config.TextColumn(pinned=True),
        "Rows": number(format="localized", help="Of which it is known whether they have the label"),
        "There (%)": number(format="%.2f", help="Share of these rows that have it"),
        "Claimed (%)": number(format="%.2f", help="Mean probability that the model gives to it"),
        "ECE (%)": number(format="%.2f", help=_HELP["ece"]),
        "True ECE from (%)": number(format="%.2f", help="Lower end of the 95 % interval of the true ECE"),
        "to (%)": number(format="%.2f", help="Upper end of that interval"),
        "If calibrated (%)": number(format="%.2f", help="What a calibrated model shows on as many rows, by chance"),
        "NLL": number(format="%.4f", help=_HELP["nll"]),
        "Brier": number(format="%.4f", help=_HELP["brier"]),
        "AUROC": number(format="%.4f", help=_HELP["auroc"]),
    }
    st.subheader("Labels")
    elements.table(pd.DataFrame([_line(x) for x in worst]), key="labels-table", download="labels", columns=columns)


def _line(x: LabelFigures) -> dict[str, Any]:
    line: dict[str, Any] = {"Label": x.name, "The probabilities are": WORDS[x.level], "Rows": x.rows}
    if not x.metrics:
        return line
    error, m = x.metrics["ece"], {key: found.value for key, found in x.metrics.items()}
    hundred = {"True ECE from (%)": error.low, "to (%)": error.high, "If calibrated (%)": error.null}
    return line | {
        "There (%)": 100 * m["base_rate"], "Claimed (%)": 100 * m["claimed"], "ECE (%)": 100 * m["ece"],
        **{name: None if value is None else 100 * value for name, value in hundred.items()},
        "NLL": m["nll"], "Brier": m["brier"], "AUROC": m["auroc"] if m["auroc"] == m["auroc"] else None,
    }  # fmt: skip
