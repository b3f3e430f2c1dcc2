"""The figures of a joined study, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.figures import save
from calibrant.train.study.file import Figure
from calibrant.train.study.joined import Block, Joined

Curves = Mapping[str, Sequence[float]]  # a number of every epoch, mean over seeds, by method
_RECORDS = {m.key: m for m in METRICS}


def write_figures(out: Path, figures: Sequence[Figure], joined: Joined, curves: Mapping[str, Curves]) -> list[str]:
    """One file of each kind for every figure that has something to show; gives their names."""
    import matplotlib

    names = []
    # The same study gives the same bytes: no date, and ids that hang on nothing but the drawing.
    with matplotlib.rc_context({"svg.hashsalt": "calibrant", "svg.fonttype": "none"}):
        for figure in figures:
            drawn = _drawn(figure, joined, curves)
            if drawn is None:
                continue
            for suffix in (".svg", ".png"):
                save(drawn, out / f"{figure.name}{suffix}")
                names.append(f"{figure.name}{suffix}")
    return names


def _drawn(figure: Figure, joined: Joined, curves: Mapping[str, Curves]) -> Any:
    if figure.kind == "epochs":
        return _epochs(figure.of, curves.get(figure.of, {}))
    if not joined.blocks or figure.of not in joined.metrics:
        return None
    return _bars(figure.of, joined.blocks) if figure.kind == "bars" else _cost(figure.of, joined.blocks)


def _bars(metric: str, blocks: Sequence[Block]) -> Any:
    """Mean of every method with its deviation over seeds, one mark for each calibrator."""
    from matplotlib.figure import Figure as Canvas

    first = [b for b in blocks if (b.data, b.network) == (blocks[0].data, blocks[0].network)]
    names = [line.method for line in first[0].lines]
    canvas = Canvas(figsize=(7, 1.2 + 0.26 * len(names)), layout="constrained")
    axes = canvas.add_subplot()
    for i, block in enumerate(first):
        found = {line.method: line.estimates[metric] for line in block.lines}
        shown = [n for n in names if n in found]
        scale = _scale(metric)
        axes.errorbar(
            [scale * found[n].mean for n in shown],
            [names.index(n) + 0.16 * i for n in shown],
            xerr=[scale * found[n].deviation for n in shown],
            fmt="o",
            ms=4,
            lw=1,
            capsize=2,
            label="as trained" if not block.view else f"+ {block.view}",
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel(_title(metric))
    axes.grid(axis="x", alpha=0.3)
    axes.legend(frameon=False)
    axes.set_title(f"{first[0].data}, {first[0].network}, {len(first[0].seeds)} seeds", fontsize=10)
    return canvas


def _epochs(number: str, curves: Curves) -> Any:
    """A number that losses report, epoch by epoch."""
    from matplotlib.figure import Figure as Canvas

    if not curves:
        return None
    canvas = Canvas(figsize=(6, 3.5), layout="constrained")
    axes = canvas.add_subplot()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, marker=".", label=name)
    axes.set_xlabel("epoch")
    axes.set_ylabel(number.replace("_", " "))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return canvas


def _cost(metric: str, blocks: Sequence[Block]) -> Any:
    """A metric against multiply-accumulates and against the measured time of an image."""
    from matplotlib.figure import Figure as Canvas

    block = blocks[0]
    lines = [line for line in block.lines if "macs" in line.measured]
    if not lines:
        return None
    canvas = Canvas(figsize=(9, 3.8), layout="constrained")
    for place, (key, title, scale) in enumerate(
        (("macs", "million multiply-accumulates an image", 1e-6), ("image_seconds", "milliseconds an image", 1e3))
    ):
        axes = canvas.add_subplot(1, 2, place + 1)
        for line in lines:
            e, x = line.estimates[metric], scale * line.measured[key]
            axes.errorbar([x], [_scale(metric) * e.mean], yerr=[_scale(metric) * e.deviation], fmt="o", ms=4, capsize=2)
            axes.annotate(
                line.method, (x, _scale(metric) * e.mean), xytext=(4, 3), textcoords="offset points", fontsize=7
            )
        axes.set_xlabel(title)
        axes.set_ylabel(_title(metric))
        axes.grid(alpha=0.3)
    return canvas


def _title(metric: str) -> str:
    return _RECORDS[metric].title() if metric in _RECORDS else metric.replace("_", " ")


def _scale(metric: str) -> float:
    return _RECORDS[metric].scale if metric in _RECORDS else 1.0
