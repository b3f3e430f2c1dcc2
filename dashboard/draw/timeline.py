"""Draws what was claimed and what came true over time, and since when an alarm has its evidence. Computes nothing."""

from __future__ import annotations

import altair as alt
import pandas as pd

from calibrant.dashboard.draw.charts import Y_ROOM, time_axis
from calibrant.dashboard.theme import Palette

CLAIMED, REALISED = "claimed (95 % band)", "came true (95 %)"
_KINDS = [CLAIMED, REALISED]


def timeline(
    table: pd.DataFrame, events: pd.DataFrame, *, colours: Palette, title: str, height: int = 260
) -> alt.LayerChart:
    """Columns of `table`: time, from, row, expected, low, high, labelled, accuracy, accuracy_low, accuracy_high
    (missing without labels); of `events`: began, fired, text: a span is shaded from the one to the other."""
    x = alt.X("time:T", title=None, axis=time_axis())

    def y(field: str) -> alt.Y:
        axis = alt.Axis(format=".0%", tickCount=5, minExtent=Y_ROOM)
        return alt.Y(f"{field}:Q", title="Accuracy", scale=alt.Scale(zero=False), axis=axis)

    tooltip = [
        alt.Tooltip("time:T", title="Until", format="%Y-%m-%d %H:%M:%S"),
        alt.Tooltip("from:Q", title="From row", format=","),
        alt.Tooltip("row:Q", title="To row", format=","),
        alt.Tooltip("expected:Q", title="Claimed", format=".2%"),
        alt.Tooltip("accuracy:Q", title="Came true", format=".2%"),
        alt.Tooltip("labelled:Q", title="Labelled rows", format=","),
    ]
    legend = alt.Legend(title=None)
    tint = alt.Color("kind:N", legend=legend, scale=alt.Scale(domain=_KINDS, range=[colours.neutral, colours.under]))
    shape = alt.Shape("kind:N", legend=legend, scale=alt.Scale(domain=_KINDS, range=["circle", "diamond"]))
    layers: list[alt.Chart] = []
    if len(events):
        spans = alt.Chart(events)
        layers.append(spans.mark_rect(color=colours.over, opacity=0.14).encode(alt.X("began:T"), alt.X2("fired:T")))
        for moment, dash in (("began", [5, 4]), ("fired", [1, 0])):
            rule = spans.mark_rule(color=colours.over, strokeDash=dash, strokeWidth=1.5)
            layers.append(rule.encode(alt.X(f"{moment}:T"), tooltip=[alt.Tooltip("text:N", title="Alarm")]))
    claimed, known = table.assign(kind=CLAIMED), table.dropna(subset=["accuracy"]).assign(kind=REALISED)
    base = alt.Chart(claimed)
    layers += [
        base.mark_area(color=colours.band, opacity=0.8).encode(x, y("low"), alt.Y2("high:Q")),
        base.mark_line(color=colours.neutral, strokeWidth=2).encode(x, y("expected")),
        base.mark_point(filled=True, size=30, opacity=1).encode(x, y("expected"), tint, shape, tooltip=tooltip),
    ]
    if len(known):
        told = alt.Chart(known)
        layers.append(told.mark_rule(color=colours.under).encode(x, y("accuracy_low"), alt.Y2("accuracy_high:Q")))
        layers.append(
            told.mark_point(filled=True, size=70, opacity=1).encode(x, y("accuracy"), tint, shape, tooltip=tooltip)
        )
    return alt.layer(*layers).properties(height=height, title=title)
