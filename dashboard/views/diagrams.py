"""The diagrams of the Reliability page, before | after, and which of their bins is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from calibrant.calibration.diagrams.reliability import ReliabilityDiagram
from calibrant.calibration.diagrams.smooth_curve import SmoothCurve
from calibrant.dashboard.draw import diagrams, downloads
from calibrant.dashboard.numbers.measures import Kind
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.theme import Palette
from calibrant.dashboard.widgets import controls, elements

NONE = "none"
_EVERY = 10  # points of a curve, of which there are 201, that can be pointed at


@dataclass(frozen=True)
class Side:
    """One of the two halves of the page."""

    key: str  # before | after
    title: str
    scored: Scored
    kind: Kind
    diagram: ReliabilityDiagram
    bars: ReliabilityDiagram  # of the histogram: always of equal width, as bins of equal mass are all equally high
    curve: SmoothCurve | None


def table_of(diagram: ReliabilityDiagram) -> pd.DataFrame:
    """The bins that hold rows, numbered from 1."""
    filled = diagram.filled
    table = pd.DataFrame({
        "bin": range(1, len(filled) + 1), "low": diagram.low, "high": diagram.high, "rows": diagram.rows,
        "share": diagram.share, "confidence": diagram.confidence, "accuracy": diagram.accuracy, "gap": diagram.gap,
        "accuracy_low": diagram.accuracy_low, "accuracy_high": diagram.accuracy_high,
        "band_low": diagram.band_low, "band_high": diagram.band_high,
        "verdict": _verdicts(diagram.gap, diagram.within_chance),
    })[filled]  # fmt: skip
    return table.reset_index(drop=True)


def curve_table(curve: SmoothCurve) -> pd.DataFrame:
    """The points that rest on enough rows."""
    table = pd.DataFrame({
        "confidence": curve.confidence, "accuracy": curve.accuracy, "gap": curve.gap, "rows": curve.rows,
        "density": curve.density, "band_low": curve.band_low, "band_high": curve.band_high,
        "mark": np.arange(len(curve.confidence)) % _EVERY == 0, "verdict": _verdicts(curve.gap, curve.within_chance),
    })[curve.supported]  # fmt: skip
    return table.reset_index(drop=True)


def _verdicts(gaps: NDArray[np.float64], within: NDArray[np.bool_]) -> list[str]:
    return [
        diagrams.WITHIN if inside else diagrams.OVER if gap > 0 else diagrams.UNDER
        for gap, inside in zip(gaps.tolist(), within.tolist(), strict=True)
    ]


def render(
    sides: list[Side], *, name: str, bins: int, about: str, beside: Callable[[tuple[str, int]], None]
) -> tuple[str, int] | None:
    """Draws them; returns side and number of the bin whose rows are asked for. `about`: what its choice depends on."""
    if not any(side.diagram.rows.sum() for side in sides):
        st.info("No row was predicted like this.", icon=":material/info:")
        return None
    top = max(float(side.bars.share[side.bars.filled].max(initial=0)) for side in sides) * 1.05
    # A picked bin has its pictures beside the diagrams.
    picked = str(st.session_state.get("bin", st.query_params.get("bin", NONE)))
    columns = list(st.columns(2) if picked == NONE else st.columns([5, 5, 4]))
    for column, side in zip(columns, sides, strict=False):
        with column:
            _draw(side, f"reliability-{name}-{side.key}", top, bins)
    with columns[1] if len(sides) == 1 else st.container():
        _explain(sides[0].kind)
    found = _picked_bin(sides, about)
    if (found is None) != (picked == NONE):
        st.rerun()
    if found is not None:
        with columns[2]:
            beside(found)
    return found


def _draw(side: Side, name: str, top: float, bins: int) -> None:
    table = table_of(side.diagram) if side.curve is None else curve_table(side.curve)
    if table.empty:
        few = "too few rows were" if side.diagram.rows.sum() else "no row was"
        st.info(f"{side.title}: {few} predicted like this.", icon=":material/info:")
        return
    draw = _upper(side, table)
    event = elements.drawing(
        draw(colours=elements.colours()),
        alt=f"Reliability diagram, {side.title}",
        key=f"diagram-{side.key}",
        select="bin",
    )
    spread = table_of(side.bars)
    elements.drawing(
        diagrams.histogram(spread, colours=elements.colours(), top=top),
        alt=f"Confidence histogram, {side.title}",
        key=f"histogram-{side.key}",
    )
    downloads.offer(name, table.drop(columns="mark", errors="ignore"), _Both(draw, spread, top))
    _remember_click(side, event, bins)


def _upper(side: Side, table: pd.DataFrame) -> downloads.Draw:
    if side.curve is not None:
        return partial(diagrams.curve, table, title=side.title)
    return partial(diagrams.reliability, table, title=side.title, edges=side.kind == "width")


@dataclass(frozen=True)
class _Both:
    """Diagram and histogram in one picture."""

    upper: downloads.Draw
    spread: pd.DataFrame
    top: float

    def __call__(self, *, colours: Palette) -> alt.VConcatChart:
        upper: Any = self.upper(colours=colours)
        return diagrams.with_histogram(upper, self.spread, colours=colours, top=self.top)


def _explain(kind: Kind) -> None:
    if kind == "smooth":
        st.markdown(
            "The line is the accuracy to expect at each confidence, smoothed over neighbours; it is thicker where more "
            "rows lie. On the dashed line the model is right exactly as often as it claims. :orange[Circles below it] "
            "claim too much, :blue[diamonds above it] too little; grey squares lie inside the grey band, where chance "
            "explains the distance at a single point. The bars show how the rows spread over confidence."
        )
        return
    st.markdown(
        "Each mark is a bin of confidence; its area grows with the share of the rows in it. On the dashed line the "
        "model is right exactly as often as it claims. :orange[Circles below the line] claim too much, "
        ":blue[diamonds above it] too little; grey squares lie inside the grey band, where chance explains the "
        "distance. The bars show how the rows spread over confidence."
    )


# ---- which bin ----


def _remember_click(side: Side, event: Any, bins: int) -> None:
    """A click on a mark sets the bin; the same click must not win again when another control is moved."""
    points = event.selection.get("bin", []) if event is not None else []
    clicked = None
    if points:
        number = points[0].get("bin")
        if number is None:  # a point of the curve: the bin of equal width that it lies in
            number = max(1, int(np.ceil(round(float(points[0]["confidence"]) * bins, 9))))
        clicked = f"{side.key}-{int(number)}"
    seen = f"click:{side.key}"
    if clicked != st.session_state.get(seen):
        st.session_state[seen] = clicked
        if clicked is not None:
            st.session_state["bin"] = clicked


def _picked_bin(sides: list[Side], about: str) -> tuple[str, int] | None:
    labels = {NONE: "none"}
    for side in sides:
        table = table_of(side.diagram)[["bin", "low", "high", "confidence", "rows"]]
        for number, low, high, mean, rows in table.itertuples(index=False, name=None):
            of = f"mean {100 * mean:.1f} %" if side.kind == "mass" else f"{100 * low:.1f}–{100 * high:.1f} %"
            labels[f"{side.key}-{number}"] = f"{side.key}: {of}, {rows:,} rows"
    chosen = controls.choose(
        "Rows of one bin", list(labels), key="bin", labels=labels, about=about, help="Or click a mark in a diagram."
    )
    if chosen == NONE:
        return None
    key, _, bin_number = chosen.partition("-")
    return key, int(bin_number)
