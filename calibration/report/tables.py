"""How a number is written, and the text table of `calibrant evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrant.calibration.metrics.table import METRICS, Unit
from calibrant.progress import table

if TYPE_CHECKING:
    from calibrant.calibration.intervals.measured import Measured
    from calibrant.calibration.report.figures import Model


def number(value: float | None, unit: Unit) -> str:
    if value is None or value != value:
        return "-"
    if value in (float("inf"), float("-inf")):
        return "infinite"
    return f"{100 * value:.2f} %" if unit == "percent" else f"{value:.4f}"


def interval(m: Measured, unit: Unit) -> str:
    if m.low is None or m.high is None:
        return "-"
    if unit == "percent":
        return f"{100 * m.low:.2f} .. {100 * m.high:.2f} %"
    return f"{m.low:.4f} .. {m.high:.4f}"


def text_table(models: Sequence[Model]) -> str:
    """Each model's numbers: value, 95 % interval of the truth, and what a calibrated model would show."""
    blocks = []
    for model in models:
        e = model.evaluation
        weighting = "" if e.target_prior is None else f", weighted to the target prior (worth {e.effective_rows:,.0f})"
        rows = [
            (
                c.indented,
                number(m.value, c.unit),
                interval(m, c.unit),
                number(m.null, c.unit),
            )
            for c in METRICS
            if (m := e.metrics.get(c.key)) is not None
        ]
        head = f"{model.name}: {e.rows:,} rows{weighting}, {e.classes} classes, {e.bins} bins"
        blocks.append(head + "\n" + table(("metric", "value", "95 % interval", "if calibrated"), rows))
    return "\n\n".join(blocks)
