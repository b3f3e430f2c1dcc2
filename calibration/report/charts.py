"""Charts beside the reliability diagrams: risk against coverage, and the classes' gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calibrant.calibration.metrics.ranking import RiskCoverage, risk_coverage
from calibrant.calibration.report.figures import GREY, OVER, PALE, UNDER, Model, new_figure, shortened, style
from calibrant.calibration.statistics.statistics import Statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = (OVER, UNDER, "#4D7C0F", "#7C3AED", "#B45309", GREY)
_MOST_CLASSES = 40


def risk_coverage_of(statistics: Statistics) -> RiskCoverage:
    """From the cells of confidence: as fine as any chart can show."""
    cells = statistics.cells()
    full = cells.weight > 0
    wrong = 1 - cells.correct_sum[full] / cells.weight[full]
    return risk_coverage(np.flatnonzero(full).astype(np.float64), wrong, cells.weight[full])


def risk_coverage_figure(models: Sequence[Model]) -> Figure:
    """Error rate among the answered against the share answered; the lower line is the better order of confidence."""
    with style():
        figure = new_figure(7.2, 4.0)
        axes = figure.add_axes((0.105, 0.14, 0.86, 0.74))
        draw_risk_coverage(axes, models)
        return figure


def draw_risk_coverage(axes: Axes, models: Sequence[Model]) -> None:
    top = 0.0
    for i, model in enumerate(models):
        curve = risk_coverage_of(model.statistics)
        shown = curve.coverage >= 0.02  # below, a handful of rows
        axes.plot(
            curve.coverage[shown],
            curve.risk[shown],
            color=_LINES[i % len(_LINES)],
            linewidth=2,
            linestyle="-" if i % 2 == 0 else (0, (5, 2)),
            label=shortened(model.name),
        )
        top = max(top, float(curve.risk[shown].max(initial=0.0)))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(top * 1.12, 1e-3))
    axes.set_xticks(np.linspace(0, 1, 6), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"])
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.grid(color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_xlabel("share of rows answered, the surest first")
    axes.set_ylabel("error rate among them")
    axes.set_title("Answering only when sure", loc="left", fontsize=12, pad=10)
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def class_figure(models: Sequence[Model]) -> Figure | None:
    """Confidence minus accuracy of each predicted class, model beside model; None where there is nothing to show."""
    columns = [m for m in models if m.evaluation.per_class]
    if not columns or columns[0].evaluation.classes < 2:
        return None
    first = columns[0].evaluation.per_class
    gaps = np.array([[c.gap if c.gap is not None else 0.0 for c in m.evaluation.per_class] for m in columns])
    if any(row.shape != gaps[0].shape for row in gaps):
        return None
    order = np.argsort(-np.abs(gaps[0]), kind="stable")[:_MOST_CLASSES]
    order = order[np.argsort(gaps[0][order], kind="stable")]
    width = max(0.14, float(np.abs(gaps).max())) * 1.15
    with style():
        inches = 1.1 + 0.27 * len(order)
        figure = new_figure(2.0 + 3.5 * len(columns), inches)
        grid = figure.add_gridspec(
            1,
            len(columns),
            wspace=0.08,
            left=1.55 / (2.0 + 3.5 * len(columns)),
            right=0.975,
            top=1 - 0.42 / inches,
            bottom=0.55 / inches,
        )
        for j, model in enumerate(columns):
            axes = figure.add_subplot(grid[0, j])
            values = gaps[j][order]
            axes.barh(np.arange(len(order)), values, color=[OVER if v > 0 else UNDER for v in values], height=0.66)
            axes.axvline(0, color=GREY, linewidth=1)
            axes.set_xlim(-width, width)
            axes.set_ylim(-0.6, len(order) - 0.4)
            names = [shortened(first[k].name, 18) for k in order] if j == 0 else [""] * len(order)
            axes.set_yticks(np.arange(len(order)), names)
            axes.tick_params(axis="y", length=0)
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+g} %" if value else "0")
            axes.locator_params(axis="x", nbins=5)
            axes.grid(axis="x", color=PALE, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.set_title(shortened(model.name, 34), loc="left", fontsize=11, pad=8)
            axes.set_xlabel("confidence minus accuracy")
            for side in ("left", "bottom"):
                axes.spines[side].set_visible(False)
        return figure
