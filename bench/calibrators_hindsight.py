"""How much of the gap between `auto` and the best single method is that the best one is known afterwards.

    python bench/calibrators_hindsight.py OUT [--draws 5]

OUT is what `bench/calibrators.py --json OUT` made with many splits. For each (set, rows): the best method of the first
draws, `auto` minus it on those and on all others; the best method of all draws, and `auto` minus it and minus the
temperature, each with its standard error; and what picking the best on a few draws takes: mean of 2,000 random picks,
judged where they were picked and on the other draws.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

Losses = dict[str, dict[int, float]]


def read(path: Path) -> dict[tuple[str, int], Losses]:
    found: dict[tuple[str, int], Losses] = defaultdict(lambda: defaultdict(dict))
    for r in json.loads(path.read_text())["records"]:
        if "nll" in r:
            found[r["set"], r["n"]][r["method"]][r["split"]] = r["nll"]
    return found


def with_error(values: np.ndarray) -> str:
    return f"{values.mean():+.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def row(losses: Losses, draws: int) -> list[str]:
    splits = sorted(set.intersection(*(set(v) for v in losses.values())))
    names = [m for m in losses if m != "auto"]
    behind = np.array([[losses["auto"][k] - losses[m][k] for k in splits] for m in names])  # (methods, splits)
    picked, best = behind[:, :draws].mean(axis=1).argmax(), behind.mean(axis=1).argmax()
    rng, there, elsewhere = np.random.default_rng(0), [], []
    for _ in range(2000):
        order = rng.permutation(len(splits))
        some, others = order[:draws], order[draws:]
        top = behind[:, some].mean(axis=1).argmax()
        there.append(behind[top, some].mean())
        elsewhere.append(behind[top, others].mean())
    return [
        f"{names[picked]} {with_error(behind[picked, :draws])}", with_error(behind[picked, draws:]), names[best],
        with_error(behind[best]), with_error(behind[names.index("temperature")]),
        f"{np.mean(there):+.4f}", f"{np.mean(elsewhere):+.4f}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    for (name, n), losses in read(options.json).items():
        print(f"| {name} | {n} | " + " | ".join(row(losses, options.draws)) + " |")


if __name__ == "__main__":
    main()
