"""The figures of a joined study, as SVG and PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.figures import save
from calibrant.train.study.file import Figure
from calibrant.train.study.joined import Block, Joined

Vector = NDArray[np.float64]
Curves = Mapping[str, Sequence[float]]  # a number of every epoch, mean over seeds, by method
_RECORDS = {m.key: m for m in METRICS}


@dataclass(frozen=True)
class Shown:
    """What figures draw that no table holds, by method.

    curves: by number that a loss reports. norms: feature norm, confidence and whether it was right, of every test row
    of the first seed. smoothing: A and beta of a FeDLaS loss. planes: of the first seed, how much more the first class
    is held for than the second, with temperatures and without, over a square of the plane.
    """

    curves: Mapping[str, Curves] = field(default_factory=dict)
    norms: Mapping[str, tuple[Vector, Vector, Vector]] = field(default_factory=dict)
    smoothing: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    planes: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]] = field(default_factory=dict)


def write_figures(out: Path, figures: Sequence[Figure], joined: Joined, shown: Shown) -> list[str]:
    """One file of each kind for every figure that has something to show; gives their names."""
    import matplotlib

    names = []
    # The same study gives the same bytes: no date, and ids that hang on nothing but the drawing.
    with matplotlib.rc_context({"svg.hashsalt": "calibrant", "svg.fonttype": "none"}):
        for figure in figures:
            drawn = _drawn(figure, joined, shown)
            if drawn is None:
                continue
            for suffix in (".svg", ".png"):
                save(drawn, out / f"{figure.name}{suffix}")
                names.append(f"{figure.name}{suffix}")
    return names


def _drawn(figure: Figure, joined: Joined, shown: Shown) -> Any:
    if figure.kind == "epochs":
        return _epochs(figure.of, shown.curves.get(figure.of, {}))
    if figure.kind == "norms":
        return _norms(shown.norms)
    if figure.kind == "smoothing":
        return _smoothing(shown.smoothing)
    if figure.kind == "boundary":
        from calibrant.train.study.boundary import boundary_figure

        return boundary_figure(shown.planes)
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


def _norms(norms: Mapping[str, tuple[Vector, Vector, Vector]]) -> Any:
    """Mean confidence and accuracy by tenths of the feature norm, a panel for each method."""
    from matplotlib.figure import Figure as Canvas

    if not norms:
        return None
    canvas = Canvas(figsize=(3.2 * len(norms), 3.2), layout="constrained")
    panels = canvas.subplots(1, len(norms), sharey=True, squeeze=False)[0]
    for axes, (name, (norm, confidence, right)) in zip(panels, norms.items(), strict=True):
        tenths = np.array_split(np.argsort(norm, kind="stable"), 10)
        x = [float(norm[rows].mean()) for rows in tenths]
        axes.plot(x, [float(confidence[rows].mean()) for rows in tenths], marker=".", label="confidence")
        axes.plot(x, [float(right[rows].mean()) for rows in tenths], marker=".", label="accuracy")
        axes.set_title(f"{name}: rank correlation {rank_correlation(norm, confidence):+.2f}", fontsize=9)
        axes.set_xlabel("L1 norm of the features")
        axes.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    return canvas


def rank_correlation(a: Vector, b: Vector) -> float:
    """Spearman's; 0 where one of the two is constant."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def _smoothing(losses: Mapping[str, tuple[float, float]]) -> Any:
    """alpha_i = 2 A sigmoid(beta psi_i gamma_i) by gamma, for either sign of psi."""
    from matplotlib.figure import Figure as Canvas

    if not losses:
        return None
    canvas = Canvas(figsize=(6, 3.5), layout="constrained")
    axes = canvas.add_subplot()
    gamma = np.linspace(-3, 3, 121)
    for i, (name, (most, beta)) in enumerate(losses.items()):
        for psi, style in ((1, "-"), (-1, "--")):
            label = f"{name}, {'over' if psi > 0 else 'under'}-confident"
            axes.plot(gamma, 2 * most / (1 + np.exp(-beta * psi * gamma)), style, color=f"C{i}", label=label)
    axes.set_xlabel("feature norm, in deviations from its running mean")
    axes.set_ylabel("share of smoothing")
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
