"""Overview: every run and deployed file below the folder, and a comparison of a few."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration import Measured
from calibrant.dashboard import charts, controls, downloads, numbers, show
from calibrant.dashboard.artifacts import Model, Run, Shelf, Trouble, read_log
from calibrant.dashboard.numbers import Scored, Summary
from calibrant.dashboard.plain import plain
from calibrant.dashboard.views.reliability import table_of
from calibrant.errors import CalibrantError

MOST_COMPARED = 6
# column of the comparison: (name, percent?, higher is better?)
_RANKED = {
    "accuracy": ("Accuracy (%)", True, True),
    "balanced_accuracy": ("Balanced accuracy (%)", True, True),
    "nll": ("NLL", False, False),
    "ece": ("ECE (%)", True, False),
    "ece_after": ("ECE after (%)", True, False),
}
_HELP = {
    "Predictions": "The set that the numbers are about: test where there is one",
    "Rows": "Labelled rows of the set",
    "Accuracy (%)": "Share of rows whose first guess is right",
    "± 95 %": "Half the width of the accuracy's 95 % interval, in points",
    "Balanced accuracy (%)": "Mean over classes of the recall",
    "ECE before (%)": "Expected calibration error of the network alone: the average distance between what it claims "
    "and how often it is right",
    "ECE after (%)": "The same after the run's calibrator",
    "True ECE from (%)": "Lower end of the 95 % interval of the true ECE, after where there is a calibrator",
    "to (%)": "Upper end of that interval",
    "ECE if perfect (%)": "What chance alone shows: the ECE of a perfectly calibrated model of this size",
    "NLL before": "Negative log-likelihood, natural logarithm; lower is better",
    "NLL after": "The same after the run's calibrator",
    "T": "Temperature of the run's calibrator; above 1: the network was over-confident",
}


def render(shelf: Shelf) -> None:
    st.title("Overview")
    if not shelf.runs and not shelf.models:
        show.troubles(shelf.troubles)
        _empty(shelf)
        return
    troubles = list(shelf.troubles)
    rows = _rows(shelf, troubles)
    show.troubles(troubles)
    st.markdown(
        f"{_many(len(shelf.runs), 'run')}, {_many(len(shelf.models), 'deployed file')} and "
        f"{_many(len(shelf.calibrators), 'calibrator')} below **{plain(shelf.root.name)}**."
    )
    if shelf.runs:
        st.subheader("Runs")
        _run_table(rows)
        _compare(shelf, {name: summary for name, _, summary, _ in rows if summary is not None})
    if shelf.models:
        st.subheader("Deployed files")
        _model_table(shelf.models)


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _empty(shelf: Shelf) -> None:
    st.markdown(
        f"There are no runs below **{plain(shelf.root.name)}** yet. To see everything at once on images that need no "
        "download, run this in a terminal; it takes about three minutes:"
    )
    st.code("calibrant demo", language="bash")
    st.markdown("Or train on your own images, a folder for each class:")
    st.code("calibrant train --data images --out runs/first", language="bash")
    st.button("Look again", icon=":material/refresh:", key="again")


RowOf = tuple[str, Run, Summary | None, dict[str, Any]]


def _rows(shelf: Shelf, troubles: list[Trouble]) -> list[RowOf]:
    """A line of the table for each run; what cannot be measured becomes a trouble."""
    found: list[RowOf] = []
    for run in shelf.runs:
        best = run.best()
        line: dict[str, Any] = {"Run": run.name, "Predictions": None if best is None else best.name}
        summary = None
        if best is not None:
            near = shelf.calibrators_for(run, best)
            try:
                summary = numbers.summary(Scored.of(best), Scored.of(best, near[0]) if near else None)
            except CalibrantError as error:
                troubles.append(Trouble(f"{run.name}, {best.name}", error.what, error.fix or ""))
        if summary is not None:
            line |= _cells(summary)
        if run.metrics is not None:
            line["Epochs"] = max((int(r["epoch"]) for r in read_log(run.metrics) if "epoch" in r), default=0)
        found.append((run.name, run, summary, line))
    return found


def _cells(s: Summary) -> dict[str, Any]:
    accuracy, last = s.accuracy, s.ece_after or s.ece
    half = None if accuracy.low is None or accuracy.high is None else (accuracy.high - accuracy.low) / 2
    return {
        "Rows": s.rows, "Accuracy (%)": 100 * accuracy.value, "± 95 %": None if half is None else 100 * half,
        "ECE before (%)": 100 * s.ece.value, "ECE after (%)": None if s.ece_after is None else 100 * s.ece_after.value,
        "True ECE from (%)": _hundred(last.low), "to (%)": _hundred(last.high),
        "ECE if perfect (%)": _hundred(last.null),
        "NLL before": s.nll, "NLL after": s.nll_after, "Balanced accuracy (%)": 100 * s.balanced_accuracy,
        "T": s.temperature,
    }  # fmt: skip


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _run_table(rows: list[RowOf]) -> None:
    table = pd.DataFrame([line for _, _, _, line in rows])
    order = ["Run", "Predictions", "Rows", *[c for c in _HELP if c not in ("Predictions", "Rows")], "Epochs"]
    table = table[[c for c in order if c in table and (c in ("Run", "Predictions") or table[c].notna().any())]]
    number = st.column_config.NumberColumn
    config: dict[str, Any] = {"Run": st.column_config.TextColumn(pinned=True)}
    for column in table.columns:
        if column in ("Rows", "Epochs"):
            config[column] = number(format="localized", help=_HELP.get(column))
        elif column in ("NLL before", "NLL after"):
            config[column] = number(format="%.4f", help=_HELP[column])
        elif column == "T":
            config[column] = number(format="%.3f", help=_HELP[column])
        elif column in _HELP and column != "Predictions":
            config[column] = number(format="%.2f", help=_HELP[column])
        elif column == "Predictions":
            config[column] = st.column_config.TextColumn(help=_HELP[column])
    st.dataframe(table, hide_index=True, width="stretch", key="runs-table", column_config=config)
    downloads.offer("runs", table)


def _model_table(models: tuple[Model, ...]) -> None:
    table = pd.DataFrame([
        {
            "File": m.name, "Size (MB)": m.size / 1e6, "Classes": len(m.card.classes),
            "Calibrator": (m.card.calibrator or {}).get("method", "none"), "T": _temperature(m),
            "Prior adjustment": m.card.prior.total, "Knobs": m.card.knobs,
            "Precision": m.card.precision.get("dtype"), "Abstains below": m.card.abstain_below,
            "Images/s": _throughput(m), "Written": (m.card.created or "")[:16].replace("T", " "),
        }
        for m in models
    ])  # fmt: skip
    always = ("File", "Size (MB)", "Classes", "Calibrator", "Prior adjustment", "Knobs")
    table = table[[c for c in table if c in always or table[c].notna().any()]]
    number = st.column_config.NumberColumn
    st.dataframe(
        table, hide_index=True, width="stretch", key="models-table",
        column_config={
            "File": st.column_config.TextColumn(pinned=True), "Size (MB)": number(format="%.2f"),
            "T": number(format="%.3f", help="Fitted temperature, inside the file"),
            "Prior adjustment": number(
                format="%.2f", help="Total strength with which the class prior is corrected, training's share included"
            ),
            "Knobs": st.column_config.TextColumn(
                help="baked: temperature and adjustment are folded into the weights; runtime: they are inputs"
            ),
            "Images/s": number(format="%.0f", help="As measured when the file was made, where it was"),
        },
    )  # fmt: skip
    downloads.offer("models", table)


def _temperature(model: Model) -> float | None:
    parameters = (model.card.calibrator or {}).get("parameters", {})
    value = parameters.get("temperature") if isinstance(parameters, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _throughput(model: Model) -> float | None:
    value = model.card.metrics.get("images_per_second")
    return float(value) if isinstance(value, int | float) else None


# ---- comparison ----


def _compare(shelf: Shelf, summaries: dict[str, Summary]) -> None:
    if len(summaries) < 2:
        return
    st.subheader("Compare")
    names = list(summaries)
    chosen = controls.choose_several(
        "Runs to compare", names, key="compare", default=names[: min(3, len(names))], most=MOST_COMPARED,
        help="Two to six. Ranks say which run is best, second, ... by each number; the mean rank sums them up.",
    )  # fmt: skip
    if len(chosen) < 2:
        st.markdown("Choose a second run.")
        return
    table = ranks({name: summaries[name] for name in chosen})
    st.dataframe(
        table, hide_index=True, width="stretch", key="rank-table",
        column_config={
            "Run": st.column_config.TextColumn(pinned=True),
            "Mean rank": st.column_config.NumberColumn(
                format="%.2f", help="Mean of the ranks; 1 would be best by every number"
            ),
            **{
                name: st.column_config.NumberColumn(format="%.2f" if percent else "%.4f")
                for name, percent, _ in _RANKED.values()
            },
            **{f"Rank: {name}": st.column_config.NumberColumn(format="%.1f") for name, _, _ in _RANKED.values()},
        },
    )  # fmt: skip
    downloads.offer("comparison", table)
    st.markdown(
        "Two runs whose 95 % intervals overlap may differ by chance alone. "
        + ("They were measured on sets of different size. " if len({summaries[n].rows for n in chosen}) > 1 else "")
    )
    columns = st.columns(min(3, len(chosen)))
    for i, name in enumerate(chosen):
        run = shelf.run(name)
        best = None if run is None else run.best()
        if best is not None:
            bins = table_of(numbers.diagram(Scored.of(best), numbers.DEFAULT_BINS))
            with columns[i % len(columns)]:
                show.drawing(
                    charts.reliability(bins, colours=show.colours(), title=name, height=240),
                    alt=f"Reliability diagram of {name}", key=f"compare-{name}",
                )  # fmt: skip


def ranks(summaries: dict[str, Summary]) -> pd.DataFrame:
    """Values, their ranks (ties share the mean of their places) and the mean of the ranks, best first.

    A number that not every run has is shown but not ranked.
    """
    table = pd.DataFrame({"Run": list(summaries)})
    rank_columns = {}
    for key, (name, percent, higher) in _RANKED.items():
        column = pd.Series([_value(s, key) for s in summaries.values()], dtype=float)
        if column.notna().all():
            rank_columns[f"Rank: {name}"] = column.rank(ascending=not higher, method="average")
        if column.notna().any():
            table[name] = 100 * column if percent else column
    both = pd.DataFrame(rank_columns)
    table.insert(1, "Mean rank", both.mean(axis=1))
    return pd.concat([table, both], axis=1).sort_values("Mean rank", kind="stable").reset_index(drop=True)


def _value(summary: Summary, key: str) -> float | None:
    value = getattr(summary, key)
    return value.value if isinstance(value, Measured) else value
