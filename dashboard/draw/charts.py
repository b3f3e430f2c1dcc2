"""Draws what it is given; computes nothing. Every function takes a table or a dataclass and the colours to use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from calibrant.dashboard.theme import Palette

FONT = "Source Sans, Source Sans Pro, Helvetica, Arial, sans-serif"
# Labels of both y axes get this much room, so that two charts under each other have their plots in line.
Y_ROOM = 46


def _middle_cut(length: int) -> str:
    """A Vega expression: the label without its middle where it is long. Vega itself would cut the end, and names of
    classes often differ only there."""
    half = length // 2
    cut = f"slice(datum.label, 0, {half}) + '…' + slice(datum.label, length(datum.label) - {length - half - 1})"
    return f"length(datum.label) > {length} ? {cut} : datum.label"


def finished(chart: alt.TopLevelMixin, colours: Palette) -> Any:
    """Fonts, axis and legend colours; the last step before a chart is shown or saved."""
    axis = {
        "labelColor": colours.text, "titleColor": colours.text, "gridColor": colours.grid,
        "domainColor": colours.neutral, "tickColor": colours.neutral,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
    }  # fmt: skip
    chart = alt.layer(chart) if isinstance(chart, alt.Chart) else chart
    return chart.configure(  # type: ignore[attr-defined]
        font=FONT,
        background="transparent",
        axis=axis,
        legend={
            "labelColor": colours.text,
            "titleColor": colours.text,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "orient": "top",
            "labelLimit": 0,
            "columns": 2,
        },
        title={"color": colours.text, "fontSize": 13, "fontWeight": "normal", "anchor": "start", "dy": 1},
        view={"stroke": None},
    )


def lines(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    series: str | None,
    colours: Palette,
    title: str,
    percent: bool = False,
    order: Sequence[str] = (),
    height: int = 240,
    x_title: str = "Epoch",
    form: str = "~g",
    chance: float | None = None,
) -> alt.LayerChart:
    """Lines over epochs with a mark at each, one colour and one mark shape a series. Columns: x, y, series.

    Rows whose column `best` is true get a ring; `chance` is a dashed line.
    """
    exact = ".2%" if percent else ",.1f" if form == ",d" else ".4f"
    names = list(order) or [title]
    shapes = ["circle", "diamond", "square", "triangle-up", "cross", "triangle-down"]
    shown = table if series else table.assign(**{"series": title})
    by = series or "series"
    legend = alt.Legend(title=None, labelExpr=_middle_cut(18)) if len(names) > 1 else None
    base = alt.Chart(shown).encode(
        x=alt.X(f"{x}:Q", title=x_title, axis=alt.Axis(format="d", tickMinStep=1, grid=False)),
        y=alt.Y(
            f"{y}:Q",
            title=None,
            scale=alt.Scale(zero=chance is not None and percent, nice=True),
            axis=alt.Axis(
                format=".0%" if percent and _wide(table[y]) else ".1%" if percent else form,
                tickCount=5,
                minExtent=Y_ROOM,
                maxExtent=Y_ROOM + 14,
            ),
        ),
        color=alt.Color(f"{by}:N", scale=alt.Scale(domain=names, range=list(colours.series)), legend=legend),
        tooltip=[
            alt.Tooltip(f"{by}:N", title="Run"),
            alt.Tooltip(f"{x}:Q", title=x_title),
            alt.Tooltip(f"{y}:Q", title=title, format=exact),
        ],
    )
    points = base.mark_point(filled=True, size=36).encode(
        shape=alt.Shape(f"{by}:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)
    )
    layers = [base.mark_line(strokeWidth=2), points]
    if "best" in shown and shown["best"].any():
        ring = alt.Chart(shown[shown["best"]]).mark_point(size=150, strokeWidth=1.5, filled=False, color=colours.text)
        layers.append(ring.encode(x=f"{x}:Q", y=f"{y}:Q"))
    if chance is not None:
        guess = alt.Chart(pd.DataFrame({"chance": [chance]})).mark_rule(strokeDash=[5, 4], color=colours.neutral)
        layers.append(guess.encode(y="chance:Q", tooltip=[alt.Tooltip("chance:Q", title="Guessing", format=exact)]))
    return alt.layer(*layers).properties(height=height, title=title)


def _wide(values: pd.Series[Any]) -> bool:
    return bool(values.max() - values.min() > 0.06)


def bands(table: pd.DataFrame, *, colours: Palette, title: str, height: int = 240) -> alt.LayerChart:
    """The spread of many values over epochs. Columns: epoch, outer_low, low, middle, high, outer_high."""
    x = alt.X("epoch:Q", title="Epoch", axis=alt.Axis(format="d", tickMinStep=1, grid=False))
    y = {"title": None, "scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=5, minExtent=Y_ROOM, format="~g")}
    names = (("outer_low", "5 %"), ("low", "25 %"), ("middle", "median"), ("high", "75 %"), ("outer_high", "95 %"))
    tooltip = [alt.Tooltip("epoch:Q", title="Epoch")]
    tooltip += [alt.Tooltip(f"{column}:Q", title=label, format=".3f") for column, label in names]
    base = alt.Chart(table)
    outer = base.mark_area(opacity=0.18, color=colours.under).encode(
        x, alt.Y("outer_low:Q", **y), alt.Y2("outer_high:Q")
    )
    inner = base.mark_area(opacity=0.32, color=colours.under).encode(x, alt.Y("low:Q", **y), alt.Y2("high:Q"))
    middle = base.mark_line(color=colours.under).encode(x, alt.Y("middle:Q", **y))
    points = base.mark_point(filled=True, size=36, color=colours.under).encode(
        x, alt.Y("middle:Q", **y), tooltip=tooltip
    )
    return (outer + inner + middle + points).properties(height=height, title=title)


def bars(
    table: pd.DataFrame,
    *,
    name: str,
    value: str,
    colours: Palette,
    title: str,
    reference: float | None = None,
    form: str = ".3f",
) -> alt.LayerChart:
    """A horizontal bar for each name, in the order given. Names that are long lose their middle, not their end."""
    order = list(table[name])
    base = alt.Chart(table).encode(
        y=alt.Y(
            f"{name}:N", sort=order, title=None, axis=alt.Axis(labelLimit=0, labelExpr=_middle_cut(24), minExtent=60)
        ),
        x=alt.X(f"{value}:Q", title=title, axis=alt.Axis(format="~g", tickCount=6)),
        tooltip=[alt.Tooltip(f"{name}:N", title="Class"), alt.Tooltip(f"{value}:Q", title=title, format=form)],
    )
    layers = [base.mark_bar(color=colours.under, height=14)]
    if reference is not None:
        line = alt.Chart(pd.DataFrame({"x": [reference]})).mark_rule(color=colours.over, strokeDash=[5, 4])
        layers.append(line.encode(x="x:Q"))
    return alt.layer(*layers).properties(height=max(60, 22 * len(table)))


def share_axis(**more: Any) -> alt.Axis:
    return alt.Axis(format=".0%", values=[0, 0.2, 0.4, 0.6, 0.8, 1], **more)


def time_axis() -> alt.Axis:
    """Hours and minutes, and seconds where a label is within a minute; the day stands under the first label and
    wherever a new one begins."""
    clock = "timeFormat(datum.value, seconds(datum.value) === 0 ? '%H:%M' : '%H:%M:%S')"
    day = "timeFormat(datum.value, '%d %b %Y')"
    first = f"datum.index === 0 || {clock} === '00:00'"
    return alt.Axis(
        grid=False,
        labelOverlap=True,
        tickCount=6,
        labelExpr=f"{first} ? [{clock}, {day}] : {clock}",
        labelAlign="left",
        labelBound=True,
    )


def paired_bars(table: pd.DataFrame, *, colours: Palette) -> alt.LayerChart:
    """Two bars a class, for two answers: an outline and a full one. Columns: class, answer, probability."""
    names = list(dict.fromkeys(table["class"]))
    answers = list(dict.fromkeys(table["answer"]))
    base = alt.Chart(table).encode(
        y=alt.Y(
            "class:N", sort=names, title=None, axis=alt.Axis(labelLimit=0, labelExpr=_middle_cut(20), minExtent=60)
        ),
        yOffset=alt.YOffset("answer:N", sort=answers),
        x=alt.X("probability:Q", title="Probability", scale=alt.Scale(domain=[0, 1]), axis=share_axis()),
        color=alt.Color(
            "answer:N",
            sort=answers,
            legend=alt.Legend(title=None),
            scale=alt.Scale(domain=answers, range=[colours.background, colours.under]),
        ),
        tooltip=[
            alt.Tooltip("class:N", title="Class"),
            alt.Tooltip("answer:N", title="Answer"),
            alt.Tooltip("probability:Q", title="Probability", format=".2%"),
        ],
    )
    # The first answer is an outline, the second is full: told apart without colour too.
    return alt.layer(base.mark_bar(stroke=colours.under, strokeWidth=1.5)).properties(height=60 + 30 * len(names))


def scatter(table: pd.DataFrame, *, x: str, y: str, colours: Palette) -> alt.LayerChart:
    """A mark for each line, by shape and colour of its verdict. Columns: x, y, Name, Formula, Verdict, line."""
    levels = ["Trusted", "Usable with care", "Not to be trusted", "Cannot be told", "not judged"]
    shapes = ["circle", "triangle-up", "square", "diamond", "cross"]
    tints = [colours.series[2], colours.series[4], colours.over, colours.neutral, colours.neutral]
    legend = alt.Legend(title=None)
    chosen = alt.selection_point(name="line", fields=["line"], on="click", empty=False)
    marks = (
        alt.Chart(table)
        .mark_point(filled=True, size=140, opacity=0.9)
        .encode(
            alt.X(f"{x}:Q", title=x, scale=alt.Scale(zero=False), axis=alt.Axis(grid=False)),
            alt.Y(f"{y}:Q", title=y, scale=alt.Scale(zero=False), axis=alt.Axis(minExtent=Y_ROOM)),
            color=alt.Color("Verdict:N", legend=legend, scale=alt.Scale(domain=levels, range=tints)),
            shape=alt.Shape("Verdict:N", legend=legend, scale=alt.Scale(domain=levels, range=shapes)),
            tooltip=["Name:N", "Formula:N", "Verdict:N", alt.Tooltip(f"{x}:Q"), alt.Tooltip(f"{y}:Q")],
        )
        .add_params(chosen)
    )
    return alt.layer(marks).properties(height=420)


def columns(table: pd.DataFrame, *, x: str, x2: str, y: str, colours: Palette, title: str) -> alt.LayerChart:
    """Counts over time, a column from `x` to `x2`."""
    bars = (
        alt.Chart(table)
        .mark_rect(color=colours.under, stroke=colours.background, strokeWidth=0.5)
        .encode(
            alt.X(f"{x}:T", title=None, axis=time_axis()),
            alt.X2(x2),
            alt.Y(f"{y}:Q", title=None, axis=alt.Axis(tickCount=4, format="~s", minExtent=Y_ROOM)),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip(f"{x}:T", title="From", format="%Y-%m-%d %H:%M:%S"),
                alt.Tooltip(f"{y}:Q", title="Rows", format=","),
            ],
        )
    )
    return alt.layer(bars).properties(height=240, title=title)


def quantiles(table: pd.DataFrame, *, colours: Palette, title: str) -> alt.LayerChart:
    """Lines over time, one for each quantile. Columns: time, quantile, ms."""
    names = list(dict.fromkeys(table["quantile"]))
    scale = alt.Scale(domain=names, range=[colours.under, colours.neutral, colours.over][: len(names)])
    legend = alt.Legend(title=None, columns=3)
    base = alt.Chart(table).encode(
        x=alt.X("time:T", title=None, axis=time_axis()),
        y=alt.Y(
            "ms:Q", title=None, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5, format="~s", minExtent=Y_ROOM)
        ),
        color=alt.Color("quantile:N", scale=scale, legend=legend, sort=names),
        tooltip=[
            alt.Tooltip("time:T", title="Until", format="%Y-%m-%d %H:%M:%S"),
            alt.Tooltip("quantile:N", title="Share of the answers"),
            alt.Tooltip("ms:Q", title="Took at most (ms)", format=",.2f"),
        ],
    )
    points = base.mark_point(filled=True, size=30).encode(
        shape=alt.Shape(
            "quantile:N",
            sort=names,
            legend=legend,
            scale=alt.Scale(domain=names, range=["circle", "square", "diamond"][: len(names)]),
        )
    )
    return (base.mark_line(strokeWidth=2) + points).properties(height=240, title=title)


def steps(table: pd.DataFrame, *, colours: Palette, title: str) -> alt.LayerChart:
    """Histograms of several kinds of rows over each other. Columns: low, high, share, rows."""
    kinds = list(dict.fromkeys(table["rows"]))
    scale = alt.Scale(domain=kinds, range=[colours.under, colours.over][: len(kinds)])
    x = alt.X("low:Q", title="Confidence", scale=alt.Scale(domain=[0, 1]), axis=share_axis())
    y = alt.Y("share:Q", title="Share of rows", axis=alt.Axis(format=".0%", tickCount=4, minExtent=Y_ROOM))
    tooltip = [
        alt.Tooltip("rows:N", title="Rows"), alt.Tooltip("low:Q", title="From", format=".0%"),
        alt.Tooltip("high:Q", title="To", format=".0%"), alt.Tooltip("share:Q", title="Share", format=".2%"),
    ]  # fmt: skip
    legend = alt.Legend(title=None) if len(kinds) > 1 else None
    areas = (
        alt.Chart(table)
        .mark_rect(opacity=0.45)
        .encode(
            x,
            alt.X2("high:Q"),
            y,
            color=alt.Color("rows:N", scale=scale, legend=legend),
            y2=alt.datum(0),
            tooltip=tooltip,
        )
    )
    return alt.layer(areas).properties(height=240, title=title)
