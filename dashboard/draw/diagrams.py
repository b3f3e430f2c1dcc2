"""Draws reliability: bins or a smooth curve against the diagonal, and the histogram of confidence. Computes nothing."""

from __future__ import annotations

from dataclasses import dataclass

import altair as alt
import pandas as pd

from calibrant.dashboard.draw.charts import Y_ROOM, share_axis
from calibrant.dashboard.theme import Palette


@dataclass(frozen=True)
class Terms:
    """What a diagram calls what is claimed and what came true."""

    claimed: str = "Confidence: what the model claims"
    true: str = "Accuracy: how often it is right"
    claim: str = "Mean confidence"
    share: str = "Accuracy"
    bin_is: str | None = "The bin is"


OF_ANSWERS = Terms()
OF_A_LABEL = Terms(
    "Probability: what the model claims", "Share of rows that have it", "Mean probability", "Share that has it", None
)


def reliability(
    table: pd.DataFrame,
    *,
    colours: Palette,
    title: str,
    edges: bool = True,
    height: int = 370,
    terms: Terms = OF_ANSWERS,
) -> alt.LayerChart:
    """Accuracy against confidence, a mark for each bin, on the band that chance explains.

    Columns: bin, low, high, rows, share, confidence, accuracy, accuracy_low, accuracy_high, band_low, band_high,
    gap, verdict (OVER | UNDER | WITHIN). Without `edges` (bins of equal mass) low and high are not used.
    """
    x, y = _claimed("confidence", terms), _right("accuracy", terms)
    ends = pd.DataFrame({"confidence": [0.0, 1.0], "accuracy": [0.0, 1.0]})
    diagonal = alt.Chart(ends).mark_line(strokeDash=[5, 4], color=colours.neutral, strokeWidth=1.5).encode(x, y)
    base = alt.Chart(table)
    if edges:
        band = base.mark_rect(color=colours.band).encode(
            _claimed("low", terms), alt.X2("high:Q"), _right("band_low", terms), alt.Y2("band_high:Q")
        )
    else:
        band = base.mark_rule(color=colours.band, strokeWidth=10).encode(
            x, _right("band_low", terms), alt.Y2("band_high:Q")
        )
    verdict = _verdict_colour(colours)
    stems = (
        alt.Chart(table)
        .mark_rule(strokeWidth=4, opacity=0.55)
        .encode(x, _right("confidence", terms), alt.Y2("accuracy:Q"), color=verdict)
    )
    limits = [alt.Tooltip("low:Q", title="From", format=".2%"), alt.Tooltip("high:Q", title="To", format=".2%")]
    chosen = alt.selection_point(name="bin", fields=["bin"], on="click", clear="dblclick", empty=False)
    marks = (
        alt.Chart(table)
        .mark_point(filled=True, opacity=1, clip=True, strokeWidth=2)
        .encode(
            x,
            y,
            color=verdict,
            shape=_VERDICT_SHAPE,
            size=alt.Size("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[45, 700])),
            stroke=alt.condition(chosen, alt.value(colours.text), alt.value(colours.background)),
            tooltip=[
                alt.Tooltip("bin:Q", title="Bin"),
                *(limits if edges else []),
                alt.Tooltip("rows:Q", title="Rows", format=","),
                alt.Tooltip("confidence:Q", title=terms.claim, format=".2%"),
                alt.Tooltip("accuracy:Q", title=terms.share, format=".2%"),
                alt.Tooltip("accuracy_low:Q", title=f"{terms.share}, 95 % from", format=".2%"),
                alt.Tooltip("accuracy_high:Q", title=f"{terms.share}, 95 % to", format=".2%"),
                alt.Tooltip("gap:Q", title="Claimed - true", format="+.2%"),
                *([alt.Tooltip("verdict:N", title=terms.bin_is)] if terms.bin_is else []),
            ],
        )
        .add_params(chosen)
    )
    return alt.layer(band, diagonal, stems, marks).properties(height=height, title=title)


def histogram(table: pd.DataFrame, *, colours: Palette, top: float, height: int = 140) -> alt.LayerChart:
    """Share of the rows in each bin. Columns: bin, low, high, share, rows. `top` is the end of the y axis."""
    bars = alt.Chart(table).mark_rect(color=colours.neutral, stroke=colours.background, strokeWidth=1).encode(
        alt.X("low:Q", title="Confidence", scale=alt.Scale(domain=[0, 1.03]), axis=share_axis()), alt.X2("high:Q"),
        alt.Y("share:Q", title="Share of rows", scale=alt.Scale(domain=[0, top]),
              axis=alt.Axis(format=".0%", tickCount=4, minExtent=Y_ROOM, maxExtent=Y_ROOM)),
        y2=alt.datum(0),
        tooltip=[
            alt.Tooltip("low:Q", title="From", format=".2%"), alt.Tooltip("high:Q", title="To", format=".2%"),
            alt.Tooltip("rows:Q", title="Rows", format=","), alt.Tooltip("share:Q", title="Share", format=".2%"),
        ],
    )  # fmt: skip
    return alt.layer(bars).properties(height=height)


def curve(table: pd.DataFrame, *, colours: Palette, title: str, height: int = 370) -> alt.LayerChart:
    """Accuracy as a smooth function of confidence, on the band that chance explains; thicker where more rows lie.

    Columns: confidence, accuracy, band_low, band_high, density, rows, gap, verdict. Points in steps of 0.5 %; those
    marked in `mark` get a point to point at.
    """
    x, y = _claimed("confidence"), _right("accuracy")
    ends = pd.DataFrame({"confidence": [0.0, 1.0], "accuracy": [0.0, 1.0]})
    diagonal = alt.Chart(ends).mark_line(strokeDash=[5, 4], color=colours.neutral, strokeWidth=1.5).encode(x, y)
    base = alt.Chart(table)
    band = base.mark_area(color=colours.band).encode(x, _right("band_low"), alt.Y2("band_high:Q"))
    gaps = [
        alt.Chart(table.assign(accuracy=table["accuracy"].where(side, table["confidence"])))
        .mark_area(color=colour, opacity=0.3)
        .encode(x, _right("confidence"), alt.Y2("accuracy:Q"))
        for side, colour in ((table["gap"] > 0, colours.over), (table["gap"] <= 0, colours.under))
    ]
    most = max(float(table["density"].max()), 1e-12)
    trail = base.mark_trail(color=colours.text).encode(
        x, y, size=alt.Size("density:Q", legend=None, scale=alt.Scale(domain=[0, most], range=[1.2, 7]))
    )
    chosen = alt.selection_point(name="bin", fields=["confidence"], on="click", clear="dblclick", empty=False)
    spots = alt.Chart(table[table["mark"]]).mark_point(filled=True, opacity=1, clip=True, size=55, strokeWidth=1)
    points = spots.encode(
        x,
        y,
        color=_verdict_colour(colours),
        shape=_VERDICT_SHAPE,
        stroke=alt.condition(chosen, alt.value(colours.text), alt.value(colours.background)),
        tooltip=[
            alt.Tooltip("confidence:Q", title="Confidence", format=".1%"),
            alt.Tooltip("accuracy:Q", title="Accuracy, smoothed", format=".2%"),
            alt.Tooltip("rows:Q", title="Rows near", format=",.0f"),
            alt.Tooltip("band_low:Q", title="If calibrated, from", format=".2%"),
            alt.Tooltip("band_high:Q", title="If calibrated, to", format=".2%"),
            alt.Tooltip("gap:Q", title="Confidence - accuracy", format="+.2%"),
            alt.Tooltip("verdict:N", title="The model is here"),
        ],
    ).add_params(chosen)
    return alt.layer(band, diagonal, *gaps, trail, points).properties(height=height, title=title)


def with_histogram(upper: alt.LayerChart, spread: pd.DataFrame, *, colours: Palette, top: float) -> alt.VConcatChart:
    """Diagram and histogram in one picture, for a file. On a page they are separate, since a concatenation cannot
    follow its width."""
    return alt.vconcat(upper.properties(width=420), histogram(spread, colours=colours, top=top).properties(width=420))


OVER, UNDER, WITHIN = "over-confident", "under-confident", "what chance explains"
_VERDICTS = [OVER, UNDER, WITHIN]
_SHAPES = ["circle", "diamond", "square"]
_VERDICT_SHAPE = alt.Shape("verdict:N", legend=None, scale=alt.Scale(domain=_VERDICTS, range=_SHAPES))


def _verdict_colour(colours: Palette) -> alt.Color:
    scale = alt.Scale(domain=_VERDICTS, range=[colours.over, colours.under, colours.neutral])
    return alt.Color("verdict:N", legend=None, scale=scale)


def _claimed(field: str, terms: Terms = OF_ANSWERS) -> alt.X:
    return alt.X(f"{field}:Q", title=terms.claimed, scale=alt.Scale(domain=[0, 1.03]), axis=share_axis())


def _right(field: str, terms: Terms = OF_ANSWERS) -> alt.Y:
    axis = share_axis(minExtent=Y_ROOM, maxExtent=Y_ROOM)
    return alt.Y(f"{field}:Q", title=terms.true, scale=alt.Scale(domain=[-0.03, 1.04]), axis=axis)
