"""The comparison on the Overview: two to six runs by rank, two of them row by row."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from calibrant.calibration import Measured
from calibrant.calibration.diagrams.reliability import reliability_diagram
from calibrant.calibration.metrics.table import metric
from calibrant.dashboard.draw import diagrams
from calibrant.dashboard.folder.artifacts import Shelf
from calibrant.dashboard.folder.files import stamp
from calibrant.dashboard.numbers import deployed, measures
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views.diagrams import table_of
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain, short

MOST_COMPARED = 6
# field of the summary, by its column and metric
_RANKED = {
    key: (metric(name).title(when), metric(name))
    for name, when, key in (
        ("accuracy", "", "accuracy"), ("balanced_accuracy", "", "balanced_accuracy"), ("nll", "", "nll"),
        ("nll", "after", "nll_after"), ("ece", "", "ece"), ("ece", "after", "ece_after"),
    )
}  # fmt: skip


def render(shelf: Shelf, summaries: dict[str, Summary]) -> None:
    if len(summaries) < 2:
        return
    st.subheader("Compare")
    names = list(summaries)
    chosen = controls.choose_several(
        "Runs and deployed files to compare",
        names,
        key="compare",
        default=names[: min(3, len(names))],
        most=MOST_COMPARED,
        help="Two to six. Ranks say which run is best, second, ... by each number; the mean rank sums them up.",
    )
    if len(chosen) < 2:
        st.markdown("Choose a second run.")
        return
    table = ranks({name: summaries[name] for name in chosen})
    elements.table(
        table, key="rank-table", download="comparison",
        columns={
            "Run": st.column_config.TextColumn(pinned=True),
            "Mean rank": st.column_config.NumberColumn(
                format="%.2f", help="Mean of the ranks; 1 would be best by every number"
            ),
            **{
                title: st.column_config.NumberColumn(format=m.decimals, help=m.help) for title, m in _RANKED.values()
            },
            **{f"Rank: {title}": st.column_config.NumberColumn(format="%.1f") for title, _ in _RANKED.values()},
        },
    )  # fmt: skip
    st.markdown(
        "Two runs whose 95 % intervals overlap may differ by chance alone. "
        + ("They were measured on sets of different size. " if len({summaries[n].rows for n in chosen}) > 1 else "")
    )
    if len(chosen) == 2:
        _paired(shelf, chosen)
    columns = st.columns(min(3, len(chosen)))
    for i, name in enumerate(chosen):
        bins = _diagram(shelf, name)
        if bins is not None:
            with columns[i % len(columns)]:
                elements.chart(
                    f"reliability-{name}",
                    bins,
                    partial(diagrams.reliability, bins, title=short(name, 48), height=240),
                    alt=f"Reliability diagram of {name}",
                    key=f"compare-{name}",
                )
    if any(shelf.model(name) for name in chosen):
        st.markdown("Runs are drawn as the network says, deployed files as they answer.")


def _diagram(shelf: Shelf, name: str) -> pd.DataFrame | None:
    run, model = shelf.run(name), shelf.model(name)
    if run is not None:
        best = run.best()
        return None if best is None else table_of(measures.diagram(Scored.of(best), measures.DEFAULT_BINS))
    held_out = None if model is None else deployed.held_out(shelf, model)
    if model is None or held_out is None:
        return None
    found = deployed.statistics(stamp(model.path), Scored.of(held_out[1]))
    return table_of(reliability_diagram(found, measures.DEFAULT_BINS))


def _paired(shelf: Shelf, chosen: list[str]) -> None:
    """Two runs on the same rows: the difference is known far better than each number alone."""
    first, second = (shelf.run(name) for name in chosen)
    one, two = (None if r is None else r.best() for r in (first, second))
    if one is None or two is None:
        return
    found = measures.differences(Scored.of(one), Scored.of(two))
    if found is None:
        st.markdown("They were not measured on the same rows, so there is no paired comparison.")
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
        f"On the same rows, before calibration. First: **{plain(chosen[0])}**, second: **{plain(chosen[1])}**. Clear: "
        "the 95 % interval of the difference does not hold 0."
    )


def ranks(summaries: dict[str, Summary]) -> pd.DataFrame:
    """Values, their ranks (ties share the mean of their places) and the mean of the ranks, best first.

    A number that not every run has is shown but not ranked.
    """
    table = pd.DataFrame({"Run": list(summaries)})
    rank_columns = {}
    for key, (title, m) in _RANKED.items():
        column = pd.Series([_value(s, key) for s in summaries.values()], dtype=float)
        if column.notna().all():
            rank_columns[f"Rank: {title}"] = column.rank(ascending=m.better == "lower", method="average")
        if column.notna().any():
            table[title] = m.scale * column
    both = pd.DataFrame(rank_columns)
    table.insert(1, "Mean rank", both.mean(axis=1))
    return pd.concat([table, both], axis=1).sort_values("Mean rank", kind="stable").reset_index(drop=True)


def _value(summary: Summary, key: str) -> float | None:
    value = getattr(summary, key)
    return value.value if isinstance(value, Measured) else value
