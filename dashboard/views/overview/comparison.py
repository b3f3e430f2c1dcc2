"""The comparison on the Overview: two to six subjects that were judged on the same rows, by rank; two row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import metric
from calibrant.dashboard.draw import diagrams
from calibrant.dashboard.folder.artifacts import FolderIndex
from calibrant.dashboard.numbers import measures
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views.diagrams import table_of
from calibrant.dashboard.views.overview.lines import Line
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain, short

MOST_COMPARED = 6
_RANKED = tuple(map(metric, ("accuracy", "balanced_accuracy", "nll")))


def render(folder_index: FolderIndex, lines: Sequence[Line]) -> None:
    named = {_name(line, lines): line for line in lines}
    if len(named) < 2:
        return
    st.subheader("Compare")
    chosen = controls.choose_several(
        "Runs and deployed files to compare",
        list(named),
        key="compare",
        default=_default(named),
        most=MOST_COMPARED,
        about=folder_index.root.name,
        help="Two to six. Ranks say which is best, second, ... by each number; the mean rank sums them up.",
    )
    if len(chosen) < 2:
        st.markdown("Choose a second one.")
        return
    picked = {name: named[name] for name in chosen}
    alike = len({_rows(line) for line in picked.values()}) == 1
    table = ranks({name: line.summary for name, line in picked.items() if line.summary is not None}, alike=alike)
    number = st.column_config.NumberColumn
    columns = {
        "Run": st.column_config.TextColumn(pinned=True),
        "Mean rank": number(format="%.2f", help="Mean of the ranks; 1 would be best by every number"),
        **{m.title(): number(format=m.decimals, help=m.help) for m in (*_RANKED, metric("ece"))},
        **{f"Rank: {m.title()}": number(format="%.1f") for m in _RANKED},
    }
    elements.table(table, key="rank-table", download="comparison", columns=columns)
    if alike:
        st.markdown(
            "Two whose 95 % intervals overlap may differ by chance. ECE is not ranked: a model that knows nothing and "
            "says so has none."
        )
    else:
        st.markdown(
            "They were **not measured on the same rows**, so they are not ranked: "
            + "; ".join(f"{plain(name)} on {_where(line)}" for name, line in picked.items())
            + "."
        )
    scored = [line.subject.scored for line in picked.values()]
    if len(chosen) == 2 and alike and scored[0] is not None and scored[1] is not None:
        _paired(chosen, scored[0], scored[1])
    places = st.columns(min(3, len(chosen)))
    for i, (name, one) in enumerate(zip(chosen, scored, strict=True)):
        if one is None:
            continue
        bins = table_of(measures.diagram(one, measures.DEFAULT_BINS))
        with places[i % len(places)]:
            elements.chart(
                f"reliability-{name}",
                bins,
                partial(diagrams.reliability, bins, title=short(name, 48), height=240),
                alt=f"Reliability diagram of {name}",
                key=f"compare-{name}",
            )


def _name(line: Line, lines: Sequence[Line]) -> str:
    """Its name, with the formula where another has the same name."""
    name = line.subject.name
    alone = sum(other.subject.name == name for other in lines) == 1
    return name if alone else f"{name} ({line.subject.formula})"


def _rows(line: Line) -> tuple[object, ...]:
    """The rows that judged it, as far as their labels tell them apart."""
    scored = line.subject.scored
    if scored is None:
        return ()
    return (scored.path.name, scored.path.source.class_names, *measures.statistics(scored).by_true.rows.tolist())


def _where(line: Line) -> str:
    predictions, summary = line.subject.predictions, line.summary
    if predictions is None or summary is None:
        return "none"
    return f"{summary.rows:,} rows of {plain(predictions.name)}"


def _default(named: Mapping[str, Line]) -> list[str]:
    """The first three of those that most others share their rows with."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, line in named.items():
        groups.setdefault(_rows(line), []).append(name)
    largest = max(groups.values(), key=len)
    return largest[:3] if len(largest) > 1 else list(named)[:2]


def _paired(chosen: Sequence[str], one: Scored, two: Scored) -> None:
    """On the same rows the difference is known far better than each number alone."""
    found = measures.differences(one, two)
    if found is None:
        st.markdown("They have other rows, or too many of them, so there is no paired comparison.")
        return
    table = pd.DataFrame(
        [
            {"Number": metric(key).title()}
            | {
                column: None if value is None else metric(key).scale * value
                for column, value in (
                    ("First run", d.first),
                    ("Second run", d.second),
                    ("Second minus first", d.difference),
                    ("95 % from", d.low),
                    ("to", d.high),
                )
            }
            | {"Clear": "yes" if d.clear else "no: may be chance"}
            for key, d in found.items()
        ]
    )
    elements.table(
        table,
        key="paired-table",
        columns={
            c: st.column_config.NumberColumn(format="%.4f") for c in table.columns if c not in ("Number", "Clear")
        },
    )
    st.markdown(
        f"On the same rows. First: **{plain(chosen[0])}**, second: **{plain(chosen[1])}**. Clear: "
        "the 95 % interval of the difference does not hold 0."
    )


def ranks(summaries: Mapping[str, Summary], *, alike: bool = True) -> pd.DataFrame:
    """Values through the formula, their ranks (ties share the mean of their places) and the mean of these, best first.

    Without `alike`, where they were measured on other rows, values alone.
    """
    table = pd.DataFrame({"Run": list(summaries)})
    found = {
        "accuracy": [s.accuracy.value for s in summaries.values()],
        "balanced_accuracy": [s.balanced_accuracy for s in summaries.values()],
        "nll": [s.nll if s.nll_after is None else s.nll_after for s in summaries.values()],
        "ece": [(s.ece_after or s.ece).value for s in summaries.values()],
    }
    for key, values in found.items():
        table[metric(key).title()] = metric(key).scale * pd.Series(values, dtype=float)
    if not alike:
        return table
    places = pd.DataFrame(
        {
            f"Rank: {m.title()}": pd.Series(found[m.key], dtype=float).rank(
                ascending=m.better == "lower", method="average"
            )
            for m in _RANKED
        }
    )
    table.insert(1, "Mean rank", places.mean(axis=1))
    return pd.concat([table, places], axis=1).sort_values("Mean rank", kind="stable").reset_index(drop=True)
