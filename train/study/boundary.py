"""The figure of a study in the plane: probabilities in colour, and the boundary with temperatures and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]
_ACROSS = 4  # panels


def boundary_figure(planes: Mapping[str, tuple[Plane, Plane]]) -> Any:
    """A panel for each method; None where there is none."""
    from matplotlib.figure import Figure as Canvas

    from calibrant.train.study.points import EXTENT

    if not planes:
        return None
    down = -(-len(planes) // _ACROSS)
    canvas = Canvas(figsize=(2.6 * min(_ACROSS, len(planes)), 2.75 * down), layout="constrained")
    panels = canvas.subplots(down, min(_ACROSS, len(planes)), sharex=True, sharey=True, squeeze=False).flat
    square = (-EXTENT, EXTENT, -EXTENT, EXTENT)
    for (name, (with_tau, raw)), axes in zip(planes.items(), panels, strict=False):
        wide = 1 / (1 + np.exp(-with_tau.astype(np.float64)))
        # Few colours, so that one sees where the probability passes tenths and the file is small.
        axes.imshow(
            np.round(wide, 1), extent=square, origin="lower", cmap="RdBu", vmin=-0.3, vmax=1.3, interpolation="none"
        )
        for gap, line in ((with_tau, "solid"), (raw, "dashed")):
            if gap.min() < 0 < gap.max():
                axes.contour(gap, levels=[0.0], extent=square, colors="black", linestyles=line, linewidths=1)
        axes.set_title(name, fontsize=9)
    for axes in panels:  # those that are left
        axes.set_visible(False)
    canvas.supxlabel("solid: with temperatures, dashed: without; blue: the wide class", fontsize=9)
    return canvas
