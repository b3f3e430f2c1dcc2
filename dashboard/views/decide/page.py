"""Decide: answer alone or ask a human. One line on the confidence, what it costs and brings, and the button that sets
it in a deployed file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st

from calibrant.calibration.conformal.abstain import Abstention
from calibrant.dashboard.draw import decisions
from calibrant.dashboard.folder.artifacts import FolderIndex, Model
from calibrant.dashboard.numbers.decide import answering
from calibrant.dashboard.numbers.decide.answering import Split
from calibrant.dashboard.views import subject
from calibrant.dashboard.views.decide import deploy, rows_and_sets
from calibrant.dashboard.views.subject import Chosen
from calibrant.dashboard.widgets import controls, elements
from calibrant.errors import ConfigError

LINE = "threshold"
_START = 80.0  # percent, where nothing better is known


@dataclass(frozen=True)
class Wish:
    """`risk`: the most that may be wrong of what is answered; costs in whatever unit the reader thinks."""

    risk: float
    wrong: float
    handed: float
    proven: Abstention | None
    why_not: str


def render(folder_index: FolderIndex) -> None:
    elements.title("Decide")
    chosen = subject.choose(folder_index)
    if chosen is None:
        return
    wish = _wish(chosen)
    threshold = _line(chosen, wish)
    here = answering.split(chosen.scored, threshold)
    cheapest = answering.cheapest(chosen.scored, wish.wrong, wish.handed)
    _numbers(here, wish, answering.split(chosen.scored, 0.0).cost(wish.wrong, wish.handed))
    left, right = st.columns([6, 5])
    with left:
        _chart(chosen, here, cheapest, wish)
    with right:
        _offers(cheapest, wish)
        deploy.render(folder_index, chosen, threshold)
    rows_and_sets.render(folder_index, chosen, threshold)


def _wish(chosen: Chosen) -> Wish:
    first, second, third = st.columns(3)
    with first:
        risk = (
            controls.number(
                "At most so many answers wrong (%)",
                0.01,
                50.0,
                step=0.5,
                key="wish",
                default=5.0,
                help="The error rate that you can live with, among what the model answers alone.",
            )
            / 100
        )
    with second:
        wrong = controls.number(
            "A wrong answer costs", 0.0, 1e9, step=1.0, key="wrong", default=20.0, help="In any unit: euros, minutes."
        )
    with third:
        handed = controls.number(
            "Asking a human costs", 0.0, 1e9, step=1.0, key="handed", default=1.0, help="In the same unit."
        )
    try:
        return Wish(risk, wrong, handed, answering.proven(chosen.scored, risk), "")
    except ConfigError as error:
        fix = f"; {error.fix}" if error.fix else ""
        return Wish(risk, wrong, handed, None, elements.said(f"{error.what}{fix}"))


def _line(chosen: Chosen, wish: Wish) -> float:
    """The slider moves in tenths of a percent; where it stands on a proven threshold, that one exactly is meant."""
    set_now = chosen.owner.card.abstain_below if isinstance(chosen.owner, Model) else None
    proven = None if wish.proven is None else answering.percent_up(wish.proven.threshold)
    start = _START if proven is None else proven
    percent = controls.slide_decimal(
        "Answer alone from a confidence of (%)",
        0.0,
        100.0,
        step=0.1,
        key=LINE,
        default=round(100 * set_now, 1) if set_now else start,
        about=f"{chosen.owner.name}|{chosen.predictions.name}",
        help="Answers that are less sure are handed to a human.",
        form="%.1f",
    )
    if wish.proven is not None and percent == proven:
        return wish.proven.threshold
    return percent / 100


def _numbers(here: Split, wish: Wish, alone: float) -> None:
    columns = st.columns(4)
    with columns[0]:
        error = here.error
        st.metric(
            "Wrong among the answered",
            "–" if error is None else elements.percent(error.value),
            help="Of the rows that are answered alone.",
        )
        if error is not None and error.low is not None:
            st.markdown(f"(95 %) {100 * error.low:.2f} – {elements.percent(error.high)}")
    with columns[1]:
        st.metric("Answered alone", elements.percent(here.share), help="The others go to a human.")
        st.markdown(f"{here.answered:,} of {here.rows:,} rows")
    with columns[2]:
        st.metric("Wrong, of 1,000 pictures", f"{1000 * here.wrong / here.rows:.1f}")
        st.markdown(f"and {1000 * here.handed / here.rows:.0f} go to a human")
    with columns[3]:
        st.metric("Cost of 1,000 pictures", f"{here.cost(wish.wrong, wish.handed):,.0f}")
        st.markdown(f"{alone:,.0f} if all were answered, {1000 * wish.handed:,.0f} if none")


def _chart(chosen: Chosen, here: Split, cheapest: Split, wish: Wish) -> None:
    found = answering.drawn(chosen.scored)
    table = pd.DataFrame(
        {
            "threshold": found.threshold,
            "share": found.share,
            "error": found.error,
            "low": found.low,
            "high": found.high,
        }
    )
    spots = [(decisions.CHEAPEST, cheapest)]
    if wish.proven is not None:
        spots.append((decisions.PROVEN, answering.split(chosen.scored, wish.proven.threshold)))
    spots.append((decisions.HERE, here))
    marks = pd.DataFrame([_spot(mark, s) for mark, s in spots if s.error is not None])
    if marks.empty:
        marks = pd.DataFrame(columns=["mark", *table.columns])
    elements.chart(
        "risk-coverage",
        table,
        partial(decisions.risk_coverage, table, marks, wished=wish.risk),
        alt="Error rate of the answers against the share that is answered",
        key="chart-risk-coverage",
    )


def _spot(mark: str, s: Split) -> dict[str, object]:
    assert s.error is not None
    return {
        "mark": mark,
        "threshold": s.threshold,
        "share": s.share,
        "error": s.error.value,
        "low": s.error.low,
        "high": s.error.high,
    }


def _offers(cheapest: Split, wish: Wish) -> None:
    """Two lines that can be taken with a click."""
    with st.container(border=True, key="offers"):
        if wish.proven is None:
            st.markdown(f"**At most {100 * wish.risk:g} % wrong**: {wish.why_not}.")
        else:
            at = answering.percent_up(wish.proven.threshold)
            st.markdown(
                f"**At most {100 * wish.risk:g} % wrong**: answer alone from **{at:.1f} %**. That is "
                f"{elements.percent(wish.proven.coverage, 1)} of the rows; proven: chosen like this, the error rate "
                "is kept in 95 of 100 such samples."
            )
            _take("proven", at)
        best = answering.worth_answering(wish.wrong, wish.handed)
        at = answering.percent_up(cheapest.threshold)
        what = (
            "asking a human for every row"
            if not cheapest.answered
            else "answering every row alone"
            if not cheapest.handed
            else f"answering from **{at:.1f} %** on"
        )
        st.markdown(
            f"**Cheapest on these rows**: {what}, {cheapest.cost(wish.wrong, wish.handed):,.0f} for 1,000 pictures. If "
            f"the confidences were right it would be {100 * best:.1f} % (1 less a human's cost over an error's)."
        )
        _take("cheapest", at)


def _take(name: str, percent: float) -> None:
    st.button("Move the line there", key=f"take-{name}", on_click=controls.put, args=(LINE, percent))
