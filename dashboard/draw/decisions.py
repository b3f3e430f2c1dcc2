"""Draws what is decided with confidence: error against share answered, confusions, sizes of sets. Computes nothing."""

from __future__ import annotations

import altair as alt
import pandas as pd

from calibrant.dashboard.draw.charts import Y_ROOM
from calibrant.dashboard.theme import Palette

HERE, PROVEN, CHEAPEST = "your line", "proven for your wish", "cheapest"
_MARKS = [HERE, PROVEN, CHEAPEST]


def risk_coverage(
    table: pd.DataFrame, marks: pd.DataFrame, *, wished: float, colours: Palette, height: int = 300
) -> alt.LayerChart:
    """Columns of `table`: share, error, low, high, threshold; of `marks`: the same and `mark` (of `_MARKS`)."""
    top = max(float(table["high"].max()), wished) * 1.04
    x = alt.X(
        "share:Q",
        title="Share answered alone",
        scale=alt.Scale(domain=[0, 1.02]),
        axis=alt.Axis(format=".0%", values=[0, 0.2, 0.4, 0.6, 0.8, 1]),
    )

    def y(field: str) -> alt.Y:
        axis = alt.Axis(format="~%", tickCount=5, minExtent=Y_ROOM)
        return alt.Y(f"{field}:Q", title="Wrong among the answered", scale=alt.Scale(domain=[0, top]), axis=axis)

    tooltip = [
        alt.Tooltip("threshold:Q", title="Answered from a confidence of", format=".2%"),
        alt.Tooltip("share:Q", title="Answered alone", format=".2%"),
        alt.Tooltip("error:Q", title="Wrong among these", format=".2%"),
        alt.Tooltip("low:Q", title="95 % from", format=".2%"),
        alt.Tooltip("high:Q", title="to", format=".2%"),
    ]
    base = alt.Chart(table)
    band = base.mark_area(color=colours.band).encode(x, y("low"), alt.Y2("high:Q"))
    line = base.mark_line(color=colours.under, strokeWidth=2).encode(x, y("error"), tooltip=tooltip)
    limit = alt.Chart(pd.DataFrame({"error": [wished]})).mark_rule(strokeDash=[5, 4], color=colours.neutral)
    shape = alt.Scale(domain=_MARKS, range=["circle", "square", "triangle-up"])
    tint = alt.Scale(domain=_MARKS, range=[colours.text, colours.under, colours.over])
    legend = alt.Legend(title=None, columns=3)
    spots = (
        alt.Chart(marks)
        .mark_point(filled=True, opacity=1, stroke=colours.background, strokeWidth=1)
        .encode(
            x,
            y("error"),
            # Where your line lies on another one, that one is still to be seen around it.
            size=alt.condition(f"datum.mark === '{HERE}'", alt.value(90), alt.value(230)),
            shape=alt.Shape("mark:N", scale=shape, legend=legend),
            color=alt.Color("mark:N", scale=tint, legend=legend),
            tooltip=[alt.Tooltip("mark:N", title="This is"), *tooltip],
        )
    )
    return alt.layer(band, line, limit.encode(y("error")), spots).properties(height=height)


def confusion(table: pd.DataFrame, *, names: list[str], colours: Palette) -> alt.LayerChart:
    """A square for each label (row) and answer (column); confusions by their share of the label's rows.

    Columns: label, answer, rows, share, wrong (share of wrong ones, missing on the diagonal), cell.
    """
    side = max(320, min(560, 24 * len(names)))
    many = len(names) > 14
    labels = alt.Axis(labelLimit=110, labelOverlap=False, labelFontSize=10 if many else 12, ticks=False, domain=False)
    down = alt.Y("label:N", sort=names, title="Label", axis=labels)
    across = alt.X(
        "answer:N",
        sort=names,
        title="Answered as",
        axis=alt.Axis(
            labelAngle=-90,
            labelLimit=90,
            labelOverlap=False,
            labelFontSize=10 if many else 12,
            ticks=False,
            domain=False,
        ),
    )
    tooltip = [
        alt.Tooltip("label:N", title="Label"),
        alt.Tooltip("answer:N", title="Answered as"),
        alt.Tooltip("rows:Q", title="Rows", format=","),
        alt.Tooltip("share:Q", title="Of this label", format=".1%"),
    ]
    most = max(float(table["wrong"].max() or 0), 0.05)
    right, wrong = table[table["label"] == table["answer"]], table[table["label"] != table["answer"]]
    chosen = alt.selection_point(name="cell", fields=["cell"], on="click", empty=False)
    edge = alt.condition(chosen, alt.value(colours.text), alt.value(colours.background))
    diagonal = (
        alt.Chart(right).mark_rect(color=colours.band, strokeWidth=2).encode(across, down, tooltip=tooltip, stroke=edge)
    )
    squares = (
        alt.Chart(wrong)
        .mark_rect(color=colours.over, strokeWidth=2)
        .encode(
            across,
            down,
            opacity=alt.Opacity("wrong:Q", legend=None, scale=alt.Scale(domain=[0, most], range=[0, 1], clamp=True)),
            tooltip=tooltip,
            stroke=edge,
        )
        .add_params(chosen)
    )
    layers = [diagonal, squares]
    if not many:
        ink = alt.condition(f"datum.wrong > {0.5 * most}", alt.value(colours.background), alt.value(colours.text))
        text = alt.Chart(table[table["rows"] > 0]).mark_text(fontSize=11)
        layers.append(text.encode(across, down, text=alt.Text("rows:Q", format=","), color=ink))
    return alt.layer(*layers).properties(height=side)


def set_sizes(table: pd.DataFrame, *, colours: Palette, height: int = 240) -> alt.LayerChart:
    """Share of the rows by the number of classes in their set. Columns: size, share, rows."""
    bars = (
        alt.Chart(table)
        .mark_bar(color=colours.under)
        .encode(
            alt.X("size:O", title="Classes in the set", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            alt.Y("share:Q", title="Share of the rows", axis=alt.Axis(format=".0%", tickCount=4, minExtent=Y_ROOM)),
            tooltip=[
                alt.Tooltip("size:O", title="Classes in the set"),
                alt.Tooltip("rows:Q", title="Rows", format=","),
                alt.Tooltip("share:Q", title="Share", format=".2%"),
            ],
        )
    )
    return alt.layer(bars).properties(height=height)
