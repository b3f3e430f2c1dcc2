"""How often the abstain threshold breaks its promise, and how much it answers: rows whose error rate is known.

    python bench/abstain.py [--rows 300,1000,5000] [--sets 400] [--json PATH]

Confidences are uniform on [.5, 1], the wish is 5 % wrong answers. Flat: every row is wrong with probability .0505, so
that any threshold breaks the promise (bar: 5 % of the sets; 32 of 400 lie within chance). Friendly: a flat 2 %, and
error rates .3 (1 - c), .6 (1 - c) and .8 (1 - c)^2 at a confidence c; a tenth of the sets for each; broken: the true
error rate above the threshold is over 5 %. Bar: .35 of the rows answered in the mean over curves and rows.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from calibrant.atomic import write_json
from calibrant.calibration.conformal.abstain import abstain_for_risk_of_answers
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
WISH, FLAT = 0.05, 0.0505
CURVES = {
    "2 %": (0.02, 0.0, 1),
    ".3 (1 - c)": (0.0, 0.3, 1),
    ".6 (1 - c)": (0.0, 0.6, 1),
    ".8 (1 - c)^2": (0.0, 0.8, 2),
}


def threshold(rate: tuple[float, float, int], rows: int, rng: np.random.Generator) -> float | None:
    confidence = rng.uniform(0.5, 1.0, rows)
    wrong = rng.random(rows) < rate[0] + rate[1] * (1.0 - confidence) ** rate[2]
    try:
        return abstain_for_risk_of_answers(confidence, wrong, risk=WISH).threshold
    except ConfigError:
        return None


def true_rate(rate: tuple[float, float, int], above: float) -> float:
    """Mean error rate of confidences that are uniform from `above` to 1."""
    return rate[0] + rate[1] * (1.0 - above) ** rate[2] / (rate[2] + 1)


def found(rows: int, sets: int) -> dict[str, object]:
    rng = np.random.default_rng([rows, sets])
    given = sum(threshold((FLAT, 0.0, 1), rows, rng) is not None for _ in range(sets))
    curves = {}
    for name, rate in CURVES.items():
        limits = [threshold(rate, rows, rng) for _ in range(max(sets // 10, 1))]
        known = [max(t, 0.5) for t in limits if t is not None]
        curves[name] = {
            "sets": len(limits), "answered": sum(2.0 * (1.0 - t) for t in known) / len(limits),
            "broken": sum(true_rate(rate, t) > WISH for t in known),
        }  # fmt: skip
    return {"rows": rows, "sets": sets, "flat_given": given, "curves": curves}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="300,1000,5000")
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    print("| rows | flat 5.05 %: thresholds given | " + " | ".join(f"{c}: answered, broken" for c in CURVES) + " |")
    print("|---" * (len(CURVES) + 2) + "|")
    results = []
    for rows in map(int, a.rows.split(",")):
        one = found(rows, a.sets)
        results.append(one)
        cells = [f"{c['answered']:.2f}, {c['broken']} of {c['sets']}" for c in one["curves"].values()]  # type: ignore[attr-defined]
        print(f"| {rows:,} | {one['flat_given']} of {a.sets} | " + " | ".join(cells) + " |", flush=True)
    answered = [c["answered"] for one in results for c in one["curves"].values()]  # type: ignore[attr-defined]
    print(f"answered in the mean: {np.mean(answered):.2f}")
    if a.json is not None:
        write_json(a.json, {"wish": WISH, "flat": FLAT, "cells": results})


if __name__ == "__main__":
    main()
