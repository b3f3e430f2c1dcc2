"""docs/images/calibrators.svg: what each method gains over a temperature by rows, from docs/evidence/calibrators.json.

python bench/calibrators_picture.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np

DOCS = Path(__file__).resolve().parents[1] / "docs"
PANELS = {
    "fitted and used on JPEG pictures (two networks)": ("resnet20-jpeg", "resnet56-jpeg"),
    "on pictures as in training (two networks)": ("resnet20-clean", "resnet56-clean"),
}
LINES = {
    "auto": "#c1121f", "structured": "#1d3557", "vector": "#457b9d", "spline": "#2a9d8f", "venn-abers": "#8d6a9f",
    "isotonic": "#e09f3e", "probmetrics sms": "#777777",
}  # fmt: skip


def gains() -> dict[tuple[str, int, str], float]:
    """Mean over splits of NLL minus the temperature's."""
    found: dict[tuple[str, int, int], dict[str, float]] = defaultdict(dict)
    for r in json.loads((DOCS / "evidence" / "calibrators.json").read_text())["records"]:
        if "nll" in r:
            found[r["set"], r["n"], r["split"]][r["method"]] = r["nll"]
    away: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for (name, n, _), values in found.items():
        for method, nll in values.items():
            away[name, n, method].append(nll - values["temperature"])
    return {k: float(np.mean(v)) for k, v in away.items()}


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "calibrators", "font.size": 9, "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    found = gains()
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), constrained_layout=True)
    for axis, (title, sets) in zip(axes, PANELS.items(), strict=True):
        sizes = [n for n in (50, 200, 1000, 5000) if all((s, n, "auto") in found for s in sets[:1])]
        for method, colour in LINES.items():
            shown = [(n, [found[s, n, method] for s in sets if (s, n, method) in found]) for n in sizes]
            points = [(n, np.mean(v)) for n, v in shown if v]
            axis.plot(
                *zip(*points, strict=True), marker="o", ms=3, lw=2.4 if method == "auto" else 1.1, color=colour,
                ls="--" if " " in method else "-", label=method, zorder=3 if method == "auto" else 2,
            )  # fmt: skip
        axis.axhline(0, color="black", lw=0.8)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axis.minorticks_off()
        axis.set_xlabel("labelled rows")
        axis.set_title(title, fontsize=9)
    axes[0].set_ylabel("NLL minus temperature's")
    axes[1].legend(frameon=False, fontsize=8)
    figure.savefig(DOCS / "images" / "calibrators.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
