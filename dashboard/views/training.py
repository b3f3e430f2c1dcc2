"""Training: how the runs went, epoch by epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import METRICS
from calibrant.dashboard.draw import charts
from calibrant.dashboard.folder.artifacts import FolderIndex, Run
from calibrant.dashboard.folder.contents import read_log
from calibrant.dashboard.folder.files import Stamp, stamp
from calibrant.dashboard.views import studies, tokens
from calibrant.dashboard.widgets import controls, elements
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.errors import CalibrantError

MOST_RUNS = 6
_FRESH_SECONDS = 120
# column: (title, shown as a percentage)
_VALIDATION = {
    **{f"val.{m.key}": (f"{m.name[0].upper()}{m.name[1:]}, validation", m.unit == "percent") for m in METRICS},
    "train.loss": ("Training loss", False),
    "lr": ("Learning rate", False),
}
_GATE = {
    "loss.underconfident_share": "under-confident",  # first, so that it is blue as on the other pages
    "loss.overconfident_share": "over-confident",
}


def render(folder_index: FolderIndex) -> None:
    elements.title("Training")
    studies.render(folder_index.studies)
    runs = [run for run in folder_index.runs if run.metrics is not None]
    if not runs and folder_index.studies:
        return
    if not runs:
        st.info("No training log here yet. A run writes one while it trains:", icon=":material/info:")
        elements.command(folder_index.root, "calibrant train --data images --out first")
        return
    names = [run.name for run in runs]
    chosen = controls.choose_several(
        "Runs",
        names,
        key="runs",
        default=(_telling(runs) or names)[:3],
        most=MOST_RUNS,
        help="Up to six runs are drawn together.",
    )
    picked = [run for run in runs if run.name in chosen]
    _curves(picked)
    tokens.render(folder_index.root, picked)
    if any(_is_fresh(run) for run in picked):
        st.fragment(_follow, run_every=4)(picked, _logs(picked))


def _telling(runs: Sequence[Run]) -> list[str]:
    """Names of runs whose log follows the validation set: heads log a loss alone, or nothing."""
    logs = {run.name: read_log(run.metrics) for run in runs if run.metrics is not None}
    return [name for name, rows in logs.items() if any("val" in row for row in rows[-1:])]


def _logs(runs: Sequence[Run]) -> list[Stamp | None]:
    found: list[Stamp | None] = []
    for run in runs:
        try:
            found.append(None if run.metrics is None else stamp(run.metrics))
        except CalibrantError:
            found.append(None)
    return found


def _follow(runs: Sequence[Run], drawn: list[Stamp | None]) -> None:
    """Draws the page anew when an epoch has been added; until then nothing is sent."""
    if _logs(runs) != drawn:
        st.rerun()


def _is_fresh(run: Run) -> bool:
    try:
        return run.metrics is not None and time.time() - run.metrics.stat().st_mtime < _FRESH_SECONDS
    except OSError:
        return False


def _curves(runs: Sequence[Run]) -> None:
    tables = {run.name: table_of(read_log(run.metrics)) for run in runs if run.metrics is not None}
    empty = [name for name, table in tables.items() if table.empty]
    for run in (run for run in runs if run.name in empty):
        state = "was fitted at once, without epochs" if run.predictions else "has not finished its first epoch"
        st.info(f"**{plain(run.name)}** {state}.", icon=":material/hourglass_empty:")
    tables = {name: table for name, table in tables.items() if name not in empty}
    if not tables:
        return
    _last_epochs(tables)
    both = pd.concat([table.assign(run=name) for name, table in tables.items()], ignore_index=True)
    st.subheader("Accuracy and calibration by epoch")
    columns = st.columns(2)
    present = [key for key in _VALIDATION if key in both and both[key].notna().any()]
    for i, key in enumerate(present):
        title, is_share = _VALIDATION[key]
        with columns[i % 2]:
            _line_chart(both, key, title, is_share, list(tables), _chance(key, runs))
    said = ["A ring marks the epoch whose weights were kept."] if _kept(both).any() else []
    if any(_chance(key, runs) is not None for key in present):
        said.append("The dashed line is guessing, all classes alike.")
    st.markdown(" ".join(said))
    _fedlas(tables)
    _vace(tables, runs)


def _kept(both: pd.DataFrame) -> pd.Series[bool]:
    """The last epoch of each run that was the best so far."""
    if "best" not in both:
        return pd.Series(False, index=both.index)
    best = both[both["best"] == True]  # noqa: E712
    return both.index.isin(best.groupby("run")["epoch"].idxmax())  # type: ignore[return-value]


def _chance(key: str, runs: Sequence[Run]) -> float | None:
    """What a guess among the classes scores; None where the number has no such value, or the runs differ in it."""
    classes = {n for run in runs if (n := _classes(run))}
    if len(classes) != 1:
        return None
    count = classes.pop()
    shares = ("val.accuracy", "val.balanced_accuracy")
    return 1 / count if key in shares else math.log(count) if key == "val.nll" else None


def _classes(run: Run) -> int:
    best = run.best()
    if best is not None:
        return len(best.source.class_names)
    names = (run.config or {}).get("class_names")
    return len(names) if isinstance(names, list) else 0


def _last_epochs(tables: dict[str, pd.DataFrame]) -> None:
    """Where each run stands: its best epoch if it says which, else its last."""
    rows = []
    for name, table in tables.items():
        best = table[table["best"] == True] if "best" in table else table.iloc[0:0]  # noqa: E712
        row = (best if len(best) else table).iloc[-1]
        rows.append({
            "Run": name, "Epochs": int(table["epoch"].max()), "Best epoch": int(row["epoch"]) if len(best) else None,
            "Accuracy (%)": _hundred(row, "val.accuracy"), "ECE (%)": _hundred(row, "val.ece"),
            "NLL": row.get("val.nll"), "Minutes": table["seconds"].sum() / 60 if "seconds" in table else None,
        })  # fmt: skip
    elements.table(
        pd.DataFrame(rows), key="epochs",
        columns={
            "Run": st.column_config.TextColumn(pinned=True),
            "Accuracy (%)": st.column_config.NumberColumn(format="%.2f", help="Validation set, best epoch"),
            "ECE (%)": st.column_config.NumberColumn(
                format="%.2f",
                help="Expected calibration error: the average distance between what the model claims and how often "
                "it is right",
            ),
            "NLL": st.column_config.NumberColumn(
                format="%.4f", help="Negative log-likelihood, natural logarithm; lower is better"
            ),
            "Minutes": st.column_config.NumberColumn(format="%.1f", help="Training and validation, all epochs"),
        },
    )  # fmt: skip


def _hundred(row: Any, key: str) -> float | None:
    value = row.get(key)
    return None if value is None else 100 * value


def _line_chart(
    both: pd.DataFrame, key: str, title: str, is_share: bool, order: Sequence[str], chance: float | None
) -> None:
    marked = both.assign(best=_kept(both))
    shown = marked[["epoch", "run", key, "best"]].dropna().rename(columns={key: "value"})
    elements.chart(
        f"training-{key}",
        shown,
        partial(
            charts.lines,
            shown,
            x="epoch",
            y="value",
            series="run",
            title=title,
            percent=is_share,
            order=order,
            chance=chance,
        ),
        alt=f"{title} by epoch",
        key=f"chart-{key.replace('.', '-')}",
    )


def _fedlas(tables: dict[str, pd.DataFrame]) -> None:
    gated = {name: t for name, t in tables.items() if all(key in t for key in _GATE)}
    if not gated:
        return
    st.subheader("FeDLaS gate")
    st.markdown(
        "The gate of the FeDLaS loss decides for each training image whether the network is over- or under-confident "
        "about it. The flip rate is the share of images whose decision differs from the one an epoch before: it falls "
        "as the gate settles."
    )
    left, right = st.columns(2)
    for name, table in gated.items():
        long = pd.concat(
            [pd.DataFrame({"epoch": table["epoch"], "part": part, "value": table[key]}) for key, part in _GATE.items()]
        ).dropna()
        with left:
            elements.chart(
                f"gate-{name}",
                long,
                partial(
                    charts.lines,
                    long,
                    x="epoch",
                    y="value",
                    series="part",
                    title=f"Gate's shares, {name}",
                    percent=True,
                    order=list(_GATE.values()),
                ),
                alt="Share of training images over- and under-confident by the gate",
                key=f"chart-gate-{name}",
            )
    flips = [
        t[["epoch", "loss.flip_rate"]].rename(columns={"loss.flip_rate": "value"}).assign(run=name)
        for name, t in gated.items()
        if "loss.flip_rate" in t
    ]
    rates = pd.concat(flips, ignore_index=True).dropna() if flips else pd.DataFrame()
    if not rates.empty:
        with right:
            elements.chart(
                "flip-rate",
                rates,
                partial(
                    charts.lines,
                    rates,
                    x="epoch",
                    y="value",
                    series="run",
                    title="Flip rate of the gate",
                    percent=True,
                    order=list(gated),
                ),
                alt="Flip rate by epoch",
                key="chart-flip-rate",
            )


def _vace(tables: dict[str, pd.DataFrame], runs: Sequence[Run]) -> None:
    spread = {name: t for name, t in tables.items() if "loss.tau_quantiles" in t}
    if not spread:
        return
    st.subheader("VACE class temperatures")
    st.markdown(
        "Each class has a temperature, tau, that divides its logit. Classes whose features scatter more get a higher "
        "one, which makes the network more careful about them."
    )
    for name, table in spread.items():
        left, right = st.columns(2)
        quantiles = _quantiles(table)
        if not quantiles.empty:
            with left:
                elements.chart(
                    f"tau-{name}",
                    quantiles,
                    partial(charts.bands, quantiles, title=f"tau of the classes, {name}: median, 50 %, 90 %"),
                    alt="Spread of the class temperatures by epoch",
                    key=f"chart-tau-{name}",
                )
        with right:
            _tau_by_class(next(run for run in runs if run.name == name))


def _quantiles(table: pd.DataFrame) -> pd.DataFrame:
    rows = table[["epoch", "loss.tau_quantiles"]].dropna()
    rows = rows[[isinstance(v, list) and len(v) == 5 for v in rows["loss.tau_quantiles"]]]
    names = ["outer_low", "low", "middle", "high", "outer_high"]
    values = pd.DataFrame(rows["loss.tau_quantiles"].tolist(), columns=names, index=rows.index, dtype=float)
    return pd.concat([rows[["epoch"]], values], axis=1)


def _tau_by_class(run: Run) -> None:
    best = run.best()
    taus = best.source.class_temperatures if best is not None else None
    if best is None or taus is None:
        return
    table = pd.DataFrame({"class": best.source.class_names, "tau": taus}).sort_values("tau", ascending=False)
    cut = table if len(table) <= 24 else pd.concat([table.head(12), table.tail(12)])
    elements.chart(
        f"tau-classes-{run.name}",
        table,
        partial(charts.bars, cut, name="class", value="tau", title="tau at the best epoch", reference=1.0),
        alt="Class temperature of each class",
        key=f"chart-tau-class-{run.name}",
    )
    if len(table) > 24:
        st.markdown(f"The 12 highest and the 12 lowest of {len(table)} classes; the file has all.")


def table_of(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows of metrics.jsonl with nested names joined by a dot; a later line of the same epoch wins (a resumed run)."""
    flat: dict[int, dict[str, Any]] = {}
    for row in rows:
        epoch = row.get("epoch")
        if isinstance(epoch, bool) or not isinstance(epoch, int | float):
            continue
        line: dict[str, Any] = {}
        for key, value in row.items():
            if isinstance(value, dict):
                line |= {f"{key}.{inner}": v for inner, v in value.items()}
            else:
                line[key] = value
        if "train_loss" in line:  # a head's log
            line.setdefault("train.loss", line.pop("train_loss"))
        flat[int(epoch)] = {**line, "epoch": int(epoch)}
    table = pd.DataFrame([flat[epoch] for epoch in sorted(flat)])
    for column in table.columns:
        if column in _VALIDATION or column in _GATE or column in ("loss.flip_rate", "seconds"):
            table[column] = pd.to_numeric(table[column], errors="coerce")
    return table
