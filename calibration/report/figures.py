"""Figures of the report. They draw numbers made elsewhere and compute none of their own.

matplotlib's Agg and SVG canvases are used directly: no window system, no global figure list, no state left behind.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.atomic import write_bytes
from calibrant.calibration.diagrams.reliability import ReliabilityDiagram, reliability_diagram
from calibrant.calibration.evaluation import Evaluation
from calibrant.calibration.statistics.statistics import Statistics
from calibrant.calibration.verdict.verdict import Verdict
from calibrant.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNDER, OVER, GREY = "#1F6FB5", "#C4560A", "#6B7280"
INK, PALE = "#1F2937", "#E5E7EB"
_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10.0, "axes.edgecolor": "#9CA3AF", "axes.labelcolor": "#555555",
    "xtick.color": "#555555", "ytick.color": "#555555", "axes.spines.top": False, "axes.spines.right": False,
    "text.color": INK, "svg.fonttype": "path", "axes.titleweight": "bold", "svg.hashsalt": "calibrant",
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """One column of a report: a name, its numbers, and the statistics behind them."""

    name: str
    evaluation: Evaluation
    statistics: Statistics
    in_sample: bool = False  # judged on the rows that its calibrator was fitted on
    notes: tuple[str, ...] = ()  # what must be known before the numbers are believed
    verdict: Verdict | None = None
    reference: bool = False  # as it was without the calibrator that stands beside it
    worse: bool = False  # than without its calibrator, which is for other rows: the first note says so and what to call

    @property
    def headline(self) -> tuple[str, ...]:
        """The note that comes before the verdict: who reads one line only must not miss it."""
        return self.notes[: int(self.worse)]

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.notes[int(self.worse) :]


def reliability_figure(models: Sequence[Model], *, bins: int = 15) -> Figure:
    """Reliability diagrams side by side, each above the histogram of its confidences."""
    with style():
        return _reliability_figure(models, bins)


def _reliability_figure(models: Sequence[Model], bins: int) -> Figure:
    columns = len(models)
    width = 4.6 * columns + 0.7
    figure = new_figure(width, 6.1)
    grid = figure.add_gridspec(
        2,
        columns,
        height_ratios=[3.4, 1],
        hspace=0.09,
        wspace=0.24,
        left=0.85 / width,
        right=1 - 0.25 / width,
        top=0.865,
        bottom=0.09,
    )
    for j, model in enumerate(models):
        diagram = reliability_diagram(model.statistics, bins)
        upper, lower = figure.add_subplot(grid[0, j]), figure.add_subplot(grid[1, j])
        draw_reliability(upper, diagram)
        draw_histogram(lower, diagram, model.evaluation)
        upper.set_title(shortened(model.name), loc="left", fontsize=12, pad=26)
        upper.text(0, 1.025, summary(model.evaluation), transform=upper.transAxes, fontsize=9.5, color="#555555")
        if j == 0:
            upper.set_ylabel("how often it is right (accuracy)")
            lower.set_ylabel("share of rows")
    return figure


def draw_reliability(axes: Axes, diagram: ReliabilityDiagram, *, ticks: bool = False) -> None:
    """`ticks`: with numbers below, where no histogram stands there."""
    shown = np.flatnonzero(diagram.filled)
    axes.plot([0, 1], [0, 1], linestyle=(0, (5, 4)), color=GREY, linewidth=1.1, zorder=2)
    _band(axes, diagram)
    area = 26 + 420 * diagram.share
    for i in shown:
        over = diagram.gap[i] >= 0
        colour = OVER if over else UNDER
        x, y = diagram.confidence[i], diagram.accuracy[i]
        inside = diagram.band_low[i] <= y <= diagram.band_high[i]
        axes.plot([x, x], [x, y], color=colour, linewidth=4.5, alpha=0.28, solid_capstyle="butt", zorder=3)
        axes.plot([x, x], [diagram.accuracy_low[i], diagram.accuracy_high[i]], color=colour, linewidth=1, zorder=4)
        axes.scatter(
            [x],
            [y],
            s=[area[i]],
            marker="o" if over else "D",
            facecolor="white" if inside else colour,
            edgecolor=colour,
            linewidth=1.5,
            zorder=5,
            clip_on=False,
        )
    _unit_axes(axes)
    axes.set_ylim(-0.03, 1.04)
    axes.tick_params(labelbottom=ticks)
    _legend(axes)


def _band(axes: Axes, d: ReliabilityDiagram) -> None:
    label = "95 % of calibrated models"
    for i in np.flatnonzero(d.filled):
        axes.fill_between(
            [d.low[i], d.high[i]],
            d.band_low[i],
            d.band_high[i],
            color=GREY,
            alpha=0.17,
            linewidth=0,
            zorder=1,
            label=label,
        )
        label = "_"


def _legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], marker="o", linestyle="none", markerfacecolor=OVER, markeredgecolor=OVER, markersize=7),
        Line2D([], [], marker="D", linestyle="none", markerfacecolor=UNDER, markeredgecolor=UNDER, markersize=6),
        Line2D([], [], marker="o", linestyle="none", markerfacecolor="white", markeredgecolor=GREY, markersize=7),
        Patch(facecolor=GREY, alpha=0.22, linewidth=0),
    ]
    labels = ["over-confident", "under-confident", "hollow: within noise", "95 % of calibrated models"]
    legend = axes.legend(handles, labels, loc="upper left", fontsize=8.5, handletextpad=0.4, borderaxespad=0.3)
    legend.get_frame().set(facecolor="white", edgecolor="none", alpha=0.85)
    legend.set_zorder(6)


def draw_histogram(axes: Axes, diagram: ReliabilityDiagram, evaluation: Evaluation) -> None:
    width = diagram.high - diagram.low
    axes.bar(diagram.low, diagram.share, width=width, align="edge", color="#9CA3AF", edgecolor="white", linewidth=0.8)
    marks = (
        (evaluation.metrics["accuracy"].value, INK, "accuracy"),
        (evaluation.metrics["mean_confidence"].value, OVER, "mean confidence"),
    )
    low, high = sorted(m[0] for m in marks)
    for value, colour, text in marks:
        axes.axvline(value, color=colour, linewidth=1.3, ymax=0.98)
        left = value == low and high > low
        axes.annotate(
            f"{text} {100 * value:.1f} %",
            (value, 0.96 if text == "accuracy" else 0.78),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if left or value > 0.5 else 4, 0),
            textcoords="offset points",
            ha="right" if left or value > 0.5 else "left",
            va="top",
            fontsize=8,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8},
        )
    _unit_axes(axes)
    axes.set_ylim(0, 1.0)
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.set_xlabel("what it claims (confidence)")


def summary(e: Evaluation) -> str:
    """The line below a title."""
    m = e.metrics["ece"]
    noise = f", noise alone {100 * m.null:.2f} %" if m.null is not None else ""
    return f"ECE {100 * m.value:.2f} %{noise}, NLL {e.metrics['nll'].value:.3f}, n = {e.rows:,}"


def _unit_axes(axes: Axes) -> None:
    axes.set_xlim(0, 1.015)
    axes.set_xticks(np.linspace(0, 1, 6), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"])
    if axes.get_ylim()[1] > 0:
        axes.set_yticks(np.linspace(0, 1, 6), ["0", "20 %", "40 %", "60 %", "80 %", "100 %"])
    axes.grid(color=PALE, linewidth=0.7, zorder=0)
    axes.set_axisbelow(True)


def shortened(name: str, most: int = 38) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure as NewFigure

    return NewFigure(figsize=(width, height), facecolor="white")


def style() -> Any:
    import matplotlib as mpl

    style: Any = _STYLE
    return mpl.rc_context(style)


def render(figure: Figure, kind: str = "png", *, dpi: int = 160) -> bytes:
    """The figure as "png", "svg" or "pdf"; the same numbers give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.BytesIO()
    with style():
        if kind == "png":
            FigureCanvasAgg(figure)
            figure.savefig(stream, format="png", dpi=dpi, metadata={"Software": None})
        elif kind == "svg":
            FigureCanvasSVG(figure)
            figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
        elif kind == "pdf":
            figure.savefig(stream, format="pdf", metadata={"CreationDate": None, "Creator": None, "Producer": None})
        else:
            raise ConfigError(f'cannot draw a ".{kind}" figure', fix="use .png, .svg or .pdf")
    return stream.getvalue()


def save(figure: Figure, path: str | Path) -> None:
    path = Path(path)
    write_bytes(path, render(figure, path.suffix.removeprefix(".").lower() or "png"))
