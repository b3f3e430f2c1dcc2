"""The diagrams of the report, into axes of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calibrant.api.calibrating import evaluate
from calibrant.api.report import Report
from calibrant.calibration.diagrams.reliability import reliability_diagram as numbers_of
from calibrant.calibration.report.charts import draw_risk_coverage
from calibrant.calibration.report.figures import draw_reliability, shortened, summary
from calibrant.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def reliability_diagram(
    predictions: Any, labels: Any = None, *, ax: Axes | None = None, bins: int = 15, **reading: Any
) -> Axes:
    """How often a model is right (accuracy) against what it claims (confidence), with the band of noise.

    predictions: what `evaluate` takes, or its report. Gives the axes, `ax` or new ones.
    """
    report = _report(predictions, labels, bins=bins, **reading)
    axes = _axes(ax, (5.2, 5.2))
    draw_reliability(axes, numbers_of(report.model.statistics, bins), ticks=True)
    axes.set_xlabel("what it claims (confidence)")
    axes.set_ylabel("how often it is right (accuracy)")
    axes.set_title(f"{shortened(report.model.name)}\n{summary(report.evaluation)}", loc="left", fontsize=9.5)
    return axes


def risk_coverage(
    predictions: Any, labels: Any = None, *, ax: Axes | None = None, bins: int = 15, **reading: Any
) -> Axes:
    """The error rate among the rows that are answered against their share, the surest first.

    predictions: what `evaluate` takes, its report, or a list of reports for one line each.
    """
    several = isinstance(predictions, Sequence) and all(isinstance(p, Report) for p in predictions)
    reports = list(predictions) if several else [_report(predictions, labels, bins=bins, **reading)]
    axes = _axes(ax, (6.4, 4.0))
    draw_risk_coverage(axes, [r.model for r in reports])
    return axes


def _report(predictions: Any, labels: Any, **options: Any) -> Report:
    found = predictions if isinstance(predictions, Report) else evaluate(predictions, labels, **options)
    if not isinstance(found, Report):
        raise DataError(
            "holds independent labels, which have a diagram each",
            where=found.model.name,
            fix="calibrant evaluate FILE --report PAGE.html draws them",
        )
    return found


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    from matplotlib import pyplot  # whose figures a notebook shows by itself

    axes: Axes = pyplot.subplots(figsize=size)[1]
    return axes
