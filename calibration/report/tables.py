"""How a number is written, and the text tables of `calibrant evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calibrant.calibration.metrics.table import METRICS, Metric, Unit, metric
from calibrant.progress import table

if TYPE_CHECKING:
    from calibrant.calibration.compare import Difference
    from calibrant.calibration.evaluation import RowGroup
    from calibrant.calibration.intervals.measured import Measured
    from calibrant.calibration.ood_files import OodRow
    from calibrant.calibration.report.figures import Model


def number(value: float | None, unit: Unit) -> str:
    if value is None or value != value:
        return "-"
    if value in (float("inf"), float("-inf")):
        return "infinite"
    return f"{100 * value:.2f} %" if unit == "percent" else f"{value:.4f}"


def interval(m: Measured, unit: Unit) -> str:
    if m.low is None or m.high is None:
        return "-" if m.withheld is None else "cannot be told"
    if unit == "percent":
        return f"{100 * m.low:.2f} .. {100 * m.high:.2f} %"
    return f"{m.low:.4f} .. {m.high:.4f}"


def shown(m: Measured, metric: Metric) -> float:
    """The headline as a number: what was measured, or that freed of noise."""
    return m.true_error if metric.freed and m.true_error is not None else m.value


def headline(m: Measured, metric: Metric) -> str:
    """Freed of noise it may say nothing: that is said."""
    if metric.freed and m.true_error is not None and not m.told:
        return "cannot be told"
    return number(shown(m, metric), metric.unit)


def by_chance(m: Measured, metric: Metric) -> str:
    """What a calibrated model would show; beside a value freed of noise, what was measured and how much of it was."""
    if metric.freed and m.true_error is not None:
        return f"measured {number(m.value, metric.unit)}, of which about {number(m.chance, metric.unit)} is chance"
    return number(m.null, metric.unit)


def withheld(metrics: Mapping[str, Measured]) -> list[str]:
    """Why numbers have no interval, one line for each reason."""
    names: dict[str, list[str]] = {}
    for record in METRICS:
        found = metrics.get(record.key)
        if found is not None and found.withheld is not None:
            names.setdefault(found.withheld, []).append(record.name)
    return [f"No interval of {', '.join(of)}: {why}." for why, of in names.items()]


def text_table(models: Sequence[Model]) -> str:
    """Each model's numbers: value, 95 % interval of the truth, and what a calibrated model would show."""
    blocks = []
    for model in models:
        e = model.evaluation
        weighting = "" if e.target_prior is None else f", weighted to the target prior (worth {e.effective_rows:,.0f})"
        rows = [
            (
                c.indented,
                headline(m, c),
                interval(m, c.unit),
                by_chance(m, c),
            )
            for c in METRICS
            if (m := e.metrics.get(c.key)) is not None
        ]
        head = f"{model.name}: {e.rows:,} rows{weighting}, {e.classes} classes, {e.bins} bins"
        lines = table(("metric", "value", "95 % interval", "if calibrated"), rows)
        blocks.append("\n".join((head, lines, *withheld(e.metrics))))
        if e.row_groups:
            blocks.append(f"{model.name}, by groups of its rows\n" + table(GROUP_HEADERS, group_rows(e.row_groups)))
    return "\n\n".join(blocks)


GROUP_HEADERS = ("group", "rows", "accuracy", "mean confidence", "ECE", "95 % interval", "if calibrated")


def group_rows(groups: Sequence[RowGroup]) -> list[tuple[str, ...]]:
    """What tells whether the confidence holds in each group of rows."""
    ece = metric("ece")
    return [
        (
            g.name,
            f"{g.rows:,}",
            number(g.metrics["accuracy"].value, "percent"),
            number(g.metrics["mean_confidence"].value, "percent"),
            number(g.metrics["ece"].value, "percent"),
            interval(g.metrics["ece"], "percent"),
            by_chance(g.metrics["ece"], ece),
        )
        for g in groups
    ]


def difference_table(first: str, differences: Mapping[str, Mapping[str, Difference]]) -> str:
    """Each further model minus the first, paired by row."""
    rows = []
    for name, found in differences.items():
        for key, d in found.items():
            unit = metric(key).unit
            known = d.low is not None and d.high is not None
            span = f"[{number(d.low, unit)}, {number(d.high, unit)}]" if known else "cannot be told"
            rows.append((name, key, number(d.difference, unit), span, "yes" if d.clear else "no"))
    headers = (f"minus {first}", "metric", "difference", "95 % interval", "beyond noise")
    return table(headers, rows, left=2)


def ood_table(rows: Sequence[OodRow]) -> str:
    """How well each score tells foreign rows: AUROC, and the share of them accepted with most of the known ones."""
    recall = f"{100 * rows[0].tpr:g} %"
    headers = ("model", "foreign", "score", "AUROC", "95 % interval", f"FPR at {recall}", "95 % interval")
    lines = [
        (
            r.model,
            f"{r.foreign} ({r.foreign_rows:,})",
            r.score,
            number(r.auroc.value, "percent"),
            interval(r.auroc, "percent"),
            number(r.fpr.value, "percent"),
            interval(r.fpr, "percent"),
        )
        for r in rows
    ]
    return table(headers, lines, left=3)
