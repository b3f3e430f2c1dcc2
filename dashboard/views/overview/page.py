"""Overview: every run and deployed file below the folder, and a comparison of a few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from calibrant.calibration.metrics.table import metric
from calibrant.dashboard import jobs, settings
from calibrant.dashboard.folder.artifacts import Model, Run, Shelf
from calibrant.dashboard.folder.contents import read_log
from calibrant.dashboard.folder.files import Trouble, stamp
from calibrant.dashboard.numbers import deployed, measures
from calibrant.dashboard.numbers.measures import Summary
from calibrant.dashboard.numbers.predictions_through import Scored
from calibrant.dashboard.views.overview import comparison
from calibrant.dashboard.widgets import elements, upload
from calibrant.dashboard.widgets.markdown_escape import plain
from calibrant.errors import CalibrantError

_HELP = {
    "Predictions": "The set that the numbers are about: test where there is one",
    "Rows": "Labelled rows of the set",
    metric("accuracy").title(): metric("accuracy").help,
    "± 95 %": "Half the width of the accuracy's 95 % interval, in points",
    metric("balanced_accuracy").title(): metric("balanced_accuracy").help,
    metric("ece").title("before"): f"Of the network alone. {metric('ece').help}",
    "ECE after (%)": "The same after the run's calibrator",
    "True ECE from (%)": "Lower end of the 95 % interval of the true ECE, after where there is a calibrator",
    "to (%)": "Upper end of that interval",
    "ECE if calibrated (%)": "What a calibrated model shows on as many rows, by chance",
    metric("nll").title("before"): f"Of the network alone. {metric('nll').help}",
    "NLL after": "The same after the run's calibrator",
    "T": "Temperature of the run's calibrator; above 1: the network was over-confident",
}


def render(shelf: Shelf) -> None:
    st.title("Overview")
    if settings.demo_is_open():
        st.button(
            "Back to your own runs",
            icon=":material/arrow_back:",
            key="close-demo",
            on_click=settings.open_demo,
            args=(False,),
        )
    if _demo_states(shelf.root):
        st.fragment(_follow_demo, run_every=1)(shelf.root)
    if not shelf.runs and not shelf.models:
        elements.troubles(shelf.troubles)
        _empty(shelf)
        upload.offer(shelf.root)
        return
    troubles = list(shelf.troubles)
    rows = _rows(shelf, troubles)
    files = _file_rows(shelf, troubles)
    elements.troubles(troubles)
    st.markdown(
        f"{_many(len(shelf.runs), 'run')}, {_many(len(shelf.models), 'deployed file')} and "
        f"{_many(len(shelf.calibrators), 'calibrator')} below **{plain(shelf.root.name)}**."
    )
    if shelf.runs:
        st.subheader("Runs")
        _run_table(rows)
        measured = {name: summary for name, _, summary, _ in rows if summary is not None}
        comparison.render(shelf, measured | {m.name: s for m, s, _ in files if s is not None})
    if shelf.models:
        st.subheader("Deployed files")
        _model_table(files)
    upload.offer(shelf.root)


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _empty(shelf: Shelf) -> None:
    st.markdown(f"There are no runs below **{plain(shelf.root.name)}** yet.")
    if settings.given().demo is not None and not settings.demo_is_open():
        st.button(
            "Open the demo that was made here",
            icon=":material/folder_open:",
            type="primary",
            key="open-demo",
            on_click=settings.open_demo,
            args=(True,),
        )
    st.markdown("To see everything at once on images that need no download, make the demo; it takes a few minutes:")
    if not _demo_states(shelf.root):
        _make_demo(shelf.root)
    st.markdown("Or train on your own images, a folder for each class:")
    elements.command(shelf.root, "calibrant train --data images --out first")
    st.button("Look again", icon=":material/refresh:", key="again")


def _demo_states(root: Path) -> list[jobs.State]:
    return [s for s in jobs.states(root) if s.job.about.get("kind") == "demo"]


def _make_demo(root: Path) -> None:
    st.code("calibrant demo", language="bash")
    if st.button("Make the demo here", icon=":material/play_arrow:", key="make-demo"):
        out = root / "calibrant-demo"
        for state in _demo_states(root):
            jobs.forget(root, state.job.id)
        jobs.start(root, "demo", ["demo", "--out", str(out)], done_when=out / "report.html", about={"kind": "demo"})
        st.rerun()


def _follow_demo(root: Path) -> None:
    """`calibrant demo` below the folder, while it runs."""
    state = next(iter(_demo_states(root)), None)
    if state is None:
        return
    if state.running:
        lines = dict.fromkeys((state.step, state.last_line))  # its own step, and the progress within it
        text = f"Making the demo for {state.seconds:.0f} s. {elements.said(' '.join(lines), 200)}"
        st.info(text, icon=":material/hourglass_top:")
        if st.button("Cancel", icon=":material/stop:", key="cancel-demo"):
            jobs.cancel(root, state.job.id)
            jobs.forget(root, state.job.id)
            st.rerun()
        return
    if state.succeeded:
        jobs.forget(root, state.job.id)
        st.rerun()
    st.error(f"The demo stopped: {elements.said(state.last_line, 300)}", icon=":material/error:")
    if st.button("Dismiss", key="forget-demo"):
        jobs.forget(root, state.job.id)
        st.rerun()


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
                summary = measures.summary(Scored.of(best), Scored.of(best, near[0]) if near else None)
            except CalibrantError as error:
                troubles.append(Trouble(f"{run.name}, {best.name}", error.what, error.fix or ""))
        if summary is not None:
            line |= _cells(summary)
        line["Size (MB)"] = _size(run)
        if run.metrics is not None:
            line["Epochs"] = _epochs(run.metrics)
        found.append((run.name, run, summary, line))
    return found


FileRow = tuple[Model, Summary | None, str | None]


def _file_rows(shelf: Shelf, troubles: list[Trouble]) -> list[FileRow]:
    """Each deployed file, with its numbers on the predictions of its own weights where these are here."""
    found: list[FileRow] = []
    for model in shelf.models:
        held_out, summary = deployed.held_out(shelf, model), None
        if held_out is not None:
            try:
                summary = deployed.summary(stamp(model.path), Scored.of(held_out[1]))
            except CalibrantError as error:
                troubles.append(Trouble(f"{model.name}, {held_out[1].name}", error.what, error.fix or ""))
        where = None if summary is None or held_out is None else f"{held_out[0].name}/{held_out[1].name}"
        found.append((model, summary, where))
    return found


def _size(run: Run) -> float | None:
    """Of the weights."""
    try:
        return (run.path / "model.safetensors").stat().st_size / 1e6
    except OSError:
        return None


def _epochs(log: Path) -> int:
    return max((e for r in read_log(log) if isinstance(e := r.get("epoch"), int)), default=0)


def _cells(s: Summary) -> dict[str, Any]:
    accuracy, last = s.accuracy, s.ece_after or s.ece
    half = None if accuracy.low is None or accuracy.high is None else (accuracy.high - accuracy.low) / 2
    return {
        "Rows": s.rows, "Accuracy (%)": 100 * accuracy.value, "± 95 %": None if half is None else 100 * half,
        "ECE before (%)": 100 * s.ece.value, "ECE after (%)": None if s.ece_after is None else 100 * s.ece_after.value,
        "True ECE from (%)": _hundred(last.low), "to (%)": _hundred(last.high),
        "ECE if calibrated (%)": _hundred(last.null),
        "NLL before": s.nll, "NLL after": s.nll_after, "Balanced accuracy (%)": 100 * s.balanced_accuracy,
        "T": s.temperature,
    }  # fmt: skip


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _run_table(rows: list[RowOf]) -> None:
    table = pd.DataFrame([line for _, _, _, line in rows])
    order = [
        "Run",
        "Predictions",
        "Rows",
        *[c for c in _HELP if c not in ("Predictions", "Rows")],
        "Size (MB)",
        "Epochs",
    ]
    table = table[[c for c in order if c in table and (c in ("Run", "Predictions") or table[c].notna().any())]]
    config = {"Run": st.column_config.TextColumn(pinned=True), **_number_columns(table, {})}
    elements.table(table, key="runs-table", download="runs", columns=config)


def _number_columns(table: pd.DataFrame, other_words: dict[str, str]) -> dict[str, Any]:
    """How each measured number is written, and what it means."""
    number = st.column_config.NumberColumn
    meant = _HELP | other_words
    config: dict[str, Any] = {}
    for column in table.columns:
        if column in ("Rows", "Epochs"):
            config[column] = number(format="localized", help=meant.get(column))
        elif column in ("NLL before", "NLL after"):
            config[column] = number(format="%.4f", help=meant[column])
        elif column == "Size (MB)":
            config[column] = number(format="%.2f", help="The weights on disk")
        elif column == "T":
            config[column] = number(format="%.3f", help=meant[column])
        elif column == "Predictions":
            config[column] = st.column_config.TextColumn(help=meant[column])
        elif column in meant:
            config[column] = number(format="%.2f", help=meant[column])
    return config


def _model_table(files: list[FileRow]) -> None:
    models = [m for m, _, _ in files]
    table = pd.DataFrame(
        [
            {
                "File": m.name,
                "Size (MB)": m.size / 1e6,
                "Classes": len(m.card.classes),
                "Calibrator": (m.card.calibrator or {}).get("method", "none"),
                "T": _temperature(m),
                "Predictions": where,
                **{k: v for k, v in ({} if s is None else _cells(s)).items() if k != "T"},
                "Prior adjustment": m.card.prior.total,
                "Knobs": m.card.knobs,
                "Precision": m.card.precision.get("dtype"),
                "Abstains below": m.card.abstain_below,
                "Images/s": _throughput(m),
                "Written": (m.card.created or "")[:16].replace("T", " "),
            }
            for m, s, where in files
        ]
    )
    always = ("File", "Size (MB)", "Classes", "Calibrator", "Prior adjustment", "Knobs", "Images/s")
    table = table[[c for c in table if c in always or table[c].notna().any()]]
    measured = int(table["Images/s"].notna().sum())
    if not measured:
        table["Images/s"] = "–"
    number = st.column_config.NumberColumn
    size = "%.3f" if max(m.size for m in models) < 1e6 else "%.2f"
    elements.table(
        table, key="models-table", download="models",
        columns={
            "File": st.column_config.TextColumn(pinned=True), "Size (MB)": number(format=size),
            "T": number(format="%.3f", help="Fitted temperature, inside the file"),
            **_number_columns(table, {
                "Predictions": "Of the run that the file came from; the numbers are what the file would have answered",
                "ECE after (%)": "As deployed: calibrator and prior adjustment included", "NLL after": "As deployed",
            }),
            "Abstains below": number(format="%.2f", help="Confidence under which the file answers 'not sure'"),
            "Prior adjustment": number(
                format="%.2f", help="Total strength with which the class prior is corrected, training's share included"
            ),
            "Knobs": st.column_config.TextColumn(
                help="baked: temperature and adjustment are folded into the weights; runtime: they are inputs"
            ),
            "Images/s": (number(format="localized") if measured else st.column_config.TextColumn()) | {
                "help": "Pictures a second, measured when the file was made, on the machine that made it; a dash where "
                "nobody measured"
            },
        },
    )  # fmt: skip
    if measured < len(models):
        st.markdown(_NOT_MEASURED)


_NOT_MEASURED = (
    "Images/s is empty where the file does not say: nobody measured it when the file was made. "
    "`calibrant bench-serve FILE` measures a served file on this machine."
)


def _temperature(model: Model) -> float | None:
    parameters = (model.card.calibrator or {}).get("parameters", {})
    value = parameters.get("temperature") if isinstance(parameters, dict) else None
    return float(value) if isinstance(value, int | float) else None


def _throughput(model: Model) -> float | None:
    value = model.card.metrics.get("images_per_second")
    return float(value) if isinstance(value, int | float) else None
