"""The lower part of the Reliability page: the rows of a bin, the worst rows, and the table of classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from calibrant.dashboard import settings
from calibrant.dashboard.draw import pictures
from calibrant.dashboard.folder.artifacts import FolderIndex, PredictionsRef, Run
from calibrant.dashboard.numbers import measures, rows
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain, short
from calibrant.errors import CalibrantError

if TYPE_CHECKING:
    from calibrant.dashboard.numbers.groups import Selection
    from calibrant.dashboard.numbers.measures import Target
    from calibrant.dashboard.numbers.predictions_through import Scored
    from calibrant.dashboard.views.diagrams import Side

PER_PAGE = 24
BESIDE = 8
_SIDE, SMALL = 150, 112
_LOWER = {
    "bin": "Rows of the bin",
    "over": "Most over-confident",
    "under": "Most under-confident",
    "classes": "Classes",
    "numbers": "All numbers",
}


@dataclass(frozen=True)
class Look:
    """Which rows, and in which bins. `about`: what the number of a bin depends on."""

    selection: Selection
    bins: int
    mass: bool
    target: Target
    about: str


def render(
    folder_index: FolderIndex,
    run: Run,
    predictions: PredictionsRef,
    sides: list[Side],
    picked: tuple[str, int] | None,
    look: Look,
) -> None:
    st.subheader("Rows and classes")
    kind = controls.choose_one_of_few(
        "Show",
        list(_LOWER),
        key="lower",
        labels=_LOWER,
        help="Over-confident: wrong, and sure of it. Under-confident: right, and unsure of it.",
    )
    side = sides[-1]
    if kind == "classes":
        _classes(side, look.bins)
        return
    if kind == "numbers":
        _all_numbers(sides, look.bins, look.target)
        return
    if kind == "bin":
        if picked is None:
            st.markdown("Click a mark in a diagram, or choose a bin above, to see its rows.")
            return
        side = next(s for s in sides if s.key == picked[0])
        found = _in_bin(side, picked[1], look)
    else:
        # A hundred is four pages: more than anybody looks through, and each page reads its ids anew.
        found = rows.worst(rows.rows_of(side.scored), "over" if kind == "over" else "under", look.selection.classes, 96)
    if len(found) == 0:
        st.markdown("There is none.")
        return
    pages = -(-len(found) // PER_PAGE)
    page = 1
    if pages > 1:
        page = controls.slide("Page", 1, min(pages, 500), key="page", default=1, about=f"{look.about} {kind} {picked}")
    shown = rows.read(side.scored, rows.rows_of(side.scored), found[(page - 1) * PER_PAGE : page * PER_PAGE])
    st.markdown(
        f"{elements.count(len(found))} rows, confidence {side.title.lower().split(':')[0]} calibration"
        + (f", page {page} of {pages}" if pages > 1 else "")
        + (". The wrong ones come first." if kind == "bin" else ".")
    )
    where = pictures.folders(folder_index, run, predictions, settings.current().images)
    _cards(shown, predictions, where)


def _in_bin(side: Side, number: int, look: Look) -> NDArray[np.int64]:
    target = look.target
    weights = None if target is None else measures.weights_of(measures.statistics(side.scored), target)
    return rows.in_bin(
        rows.rows_of(side.scored), look.bins, number, look.selection.classes, mass=look.mass, weights=weights
    )


def beside(
    folder_index: FolderIndex,
    run: Run,
    predictions: PredictionsRef,
    sides: list[Side],
    look: Look,
    picked: tuple[str, int],
) -> None:
    """The first pictures of a bin, in sight of the diagram."""
    side = next(s for s in sides if s.key == picked[0])
    found = _in_bin(side, picked[1], look)
    st.markdown(f"**{elements.count(len(found))} rows of this bin**, wrong ones first")
    strip(folder_index, run, predictions, side.scored, found[:BESIDE], key="beside")
    if len(found) > BESIDE:
        st.markdown("All of them stand below.")


def strip(
    folder_index: FolderIndex,
    run: Run,
    predictions: PredictionsRef,
    scored: Scored,
    index: NDArray[np.int64],
    *,
    key: str,
) -> None:
    """Small pictures of a few rows, side by side, with the answer, its confidence and whether it is right."""
    shown = rows.read(scored, rows.rows_of(scored), index)
    where = pictures.folders(folder_index, run, predictions, settings.current().images)
    names = predictions.source.class_names
    with st.container(horizontal=True, key=key, gap="small"):
        for row in shown:
            with st.container(width=SMALL, gap=None):
                picture(pictures.find(where, row.id), SMALL)
                sign = ":material/check:" if row.label == row.predicted else ":material/close:"
                name = plain(short(names[row.predicted], 14))
                st.markdown(f":small[{sign} {name}]  \n:small[{elements.percent(row.confidence, 1)}]")


def _cards(shown: list[rows.Row], predictions: PredictionsRef, where: tuple[Path, ...]) -> None:
    names = predictions.source.class_names
    found = [pictures.find(where, row.id) for row in shown]
    if not any(found):
        table = pd.DataFrame({
            "id": [r.id for r in shown], "label": [names[r.label] for r in shown],
            "predicted": [names[r.predicted] for r in shown], "confidence (%)": [100 * r.confidence for r in shown],
        })  # fmt: skip
        elements.table(
            table,
            key="row-table",
            download="rows",
            columns={"confidence (%)": st.column_config.NumberColumn(format="%.2f")},
        )
        st.markdown(
            "The pictures are not below this folder. To see them, start with: "
            "`calibrant dashboard RUNS --images FOLDER`, the folder that the ids are relative to."
        )
        return
    with st.container(horizontal=True, key="cards"):
        for row, path in zip(shown, found, strict=True):
            with st.container(width=_SIDE, gap="small"):
                picture(path)
                verdict = ":material/check:" if row.label == row.predicted else ":material/close:"
                st.markdown(
                    f"{verdict} **{plain(short(names[row.predicted], 28))}** {elements.percent(row.confidence, 1)}"
                    + ("" if row.label == row.predicted else f"  \nlabel: {plain(short(names[row.label], 28))}")
                )


def picture(path: pictures.Shown | None, side: int = _SIDE) -> None:
    if path is None:
        st.markdown("*(no picture)*")
        return
    try:
        st.image(pictures.thumbnail(path, 2 * _SIDE), width=side)
    except CalibrantError as error:
        st.markdown(f"*{elements.said(error.what)}*")


def _classes(side: Side, bins: int) -> None:
    evaluation = measures.scores(side.scored, bins=bins)
    if not evaluation.per_class:
        st.markdown("There are too many classes for a table here; `calibrant evaluate --json` writes all of them.")
        return
    table = pd.DataFrame(
        [
            {
                "Class": c.name,
                "Rows": c.rows,
                "Predicted": c.predicted,
                "Recall (%)": _hundred(c.recall),
                "Precision (%)": _hundred(c.precision),
                "Claims too much (points)": _hundred(c.gap),
                "ECE (%)": None if c.ece is None else 100 * c.ece.value,
                "ECE if calibrated (%)": None if c.ece is None or c.ece.null is None else 100 * c.ece.null,
            }
            for c in evaluation.per_class
        ]
    )
    form = st.column_config.NumberColumn
    elements.table(
        table, key="class-table", download=f"classes-{side.key}",
        columns={
            "Class": st.column_config.TextColumn(pinned=True),
            "Rows": form(format="localized", help="Rows with this label"),
            "Predicted": form(format="localized", help="Rows predicted as this class"),
            "Recall (%)": form(format="%.2f", help="Share of the class's rows that are found"),
            "Precision (%)": form(format="%.2f", help="Share of the rows predicted as it that are of it"),
            "Claims too much (points)": form(
                format="%.2f", help="Mean confidence minus precision of the rows predicted as it; below 0: too little"
            ),
            "ECE (%)": form(format="%.2f", help="Expected calibration error of the rows predicted as it"),
            "ECE if calibrated (%)": form(format="%.2f", help="What a calibrated model shows by chance"),
        },
    )  # fmt: skip
    st.markdown(f"{'After' if side.key == 'after' else 'Before'} calibration. Click a column's head to sort.")


def _all_numbers(sides: list[Side], bins: int, target: Target) -> None:
    """What `calibrant evaluate` prints, before and after."""
    from calibrant.calibration.metrics.table import METRICS
    from calibrant.calibration.report.tables import by_chance, headline, interval, withheld

    found = [(side.key, measures.scores(side.scored, target=target, bins=bins)) for side in sides]
    table = pd.DataFrame(
        [
            {"Number": c.name, "Better": c.better}
            | {
                f"{part} {key}" if len(found) > 1 else part: text
                for key, evaluation in found
                if (m := evaluation.metrics.get(c.key)) is not None
                for part, text in (
                    ("Value", headline(m, c)),
                    ("95 %", interval(m, c.unit)),
                    ("If calibrated", by_chance(m, c)),
                )
            }
            | {"Meaning": c.meaning}
            for c in METRICS
            if c.key in found[0][1].metrics
        ]
    )
    elements.table(
        table,
        key="numbers-table",
        download="numbers",
        columns={"Number": st.column_config.TextColumn(pinned=True)},
    )
    for line in dict.fromkeys(line for _, evaluation in found for line in withheld(evaluation.metrics)):
        st.caption(line)


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value
