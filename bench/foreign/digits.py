"""Pictures that every exporter's network is trained on: scikit-learn's 1,797 digits, 24 x 24, in colour.

The training part is small and a tenth of its labels is wrong, so that the networks claim more than they know, as most
networks do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZE = 24
PARTS = {"train": 400, "val": 600, "test": 797}
WRONG = 0.1  # of the training labels


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The 8 x 8 digits, [N, 64] of 0..16, in a shuffled order."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(42).permutation(len(found.target))
    return found.data[order].astype(np.float32), found.target[order].astype(np.int64)


def pictures(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """uint8 [N, 24, 24, 3]: orange ink on a blue that differs between pictures."""
    rng = np.random.default_rng(7)
    ink = np.kron(x.reshape(-1, 8, 8) / 16, np.ones((1, 3, 3)))[..., None]
    paper = rng.uniform((0, 20, 60), (60, 90, 200), (len(x), 1, 1, 3))
    full = paper + ink * (np.asarray([255, 150, 30]) - paper) + rng.normal(0, 12, (len(x), SIZE, SIZE, 3))
    return np.clip(full, 0, 255).round().astype(np.uint8)


def part(name: str) -> tuple[NDArray[np.float32], NDArray[np.uint8], NDArray[np.int64]]:
    """Features, pictures and labels of "train", "val" or "test"."""
    x, y = digits()
    start = sum(count for other, count in PARTS.items() if list(PARTS).index(other) < list(PARTS).index(name))
    rows = slice(start, start + PARTS[name])
    labels = y[rows].copy()
    if name == "train":
        rng = np.random.default_rng(1)
        wrong = rng.random(len(labels)) < WRONG
        labels[wrong] = rng.integers(0, 10, int(wrong.sum()))
    return x[rows], pictures(x)[rows], labels


def write_archive(path: Path) -> None:
    """The layout that `--data` reads, x_SPLIT and y_SPLIT, and f_SPLIT with the 64 numbers of each digit."""
    arrays = {}
    for split in PARTS:
        numbers, shown, labels = part(split)
        arrays |= {f"x_{split}": shown, f"y_{split}": labels, f"f_{split}": numbers}
    np.savez_compressed(path, class_names=np.asarray([f"digit {k}" for k in range(10)]), **arrays)


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
