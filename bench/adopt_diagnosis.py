"""Is wrong preprocessing diagnosed? Draws of labelled pictures, each declared wrongly.

    python bench/foreign/digits.py DIR/digits.npz
    python bench/adopt_diagnosis.py DIR/digits.npz tests/golden/adopt [--pictures 200] [--draws 50]

Columns: what the network was trained with and what was declared; in how many draws the truth was in the set that is
shown, colour order and scale (0-1, 0-255, or with a mean) of the first were right, the declared one was told to be
wrong; how many candidates the set had on average.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from calibrant.export.adoption.preprocess.declared import Declared
from calibrant.export.adoption.preprocess.diagnosis import NORMALISATIONS, diagnose
from calibrant.export.adoption.reading.foreign import Foreign
from calibrant.export.adoption.reading.found import find
from calibrant.export.adoption.reading.input_side import read_input
from calibrant.export.adoption.reading.original import Original
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import table

SIZE = 24
CASES = (  # file, truth, declared
    ("torchscript-softmax", "RGB ImageNet", "RGB 0-1"),
    ("torchscript-softmax", "RGB ImageNet", "BGR ImageNet"),
    ("dynamo-bgr", "BGR 0-1", "RGB ImageNet"),
    ("tf2onnx", "RGB 0-255", "RGB 0-1"),
    ("transformer-optimiser", "RGB -1..1", "RGB ImageNet"),
)


def declared(name: str) -> Declared:
    colour, scale = name.split(" ")
    mean, std = NORMALISATIONS[scale]
    return Declared(Preprocessing((SIZE, SIZE), SIZE, "squash", "bilinear", mean, std), colour == "BGR", "bench")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("archive", type=Path)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--pictures", type=int, default=200)
    asked.add_argument("--draws", type=int, default=50)
    given = asked.parse_args()
    arrays = np.load(given.archive)
    pixels = np.concatenate([arrays["x_val"], arrays["x_test"]])
    labels = np.concatenate([arrays["y_val"], arrays["y_test"]])
    rows = [case(*c, given, pixels, labels) for c in CASES]
    heads = ("file", "trained with", "declared", "truth in the set", "colour, scale right", "told wrong", "set size")
    print(f"{given.draws} draws of {given.pictures} pictures\n")
    print(table(heads, rows, left=3))


def case(
    file: str, truth: str, said: str, given: argparse.Namespace, pixels: np.ndarray, labels: np.ndarray
) -> tuple[str, ...]:
    foreign = Foreign.load(given.folder / f"{file}.onnx")
    taken, names = read_input(foreign.model), [f"digit {k}" for k in range(10)]
    found = find(foreign, taken, declared(said), names)
    original = Original.open(foreign.path, taken, found.output, found.kind, 10)
    held, right, told, sizes = 0, 0, 0, []
    for seed in range(given.draws):
        drawn = np.random.default_rng(seed).choice(len(labels), given.pictures, replace=False)
        seen = diagnose(original, declared(said), pixels[drawn], labels[drawn])
        fitting = [c.name for c in seen.fitting]
        held += truth in fitting
        right += kind(fitting[0]) == kind(truth)
        told += not seen.agrees
        sizes.append(len(fitting))
    of = given.draws
    return (
        file, truth, said, f"{held} of {of}", f"{right} of {of}", f"{told} of {of}", f"{np.mean(sizes):.2f}",
    )  # fmt: skip


def kind(name: str) -> tuple[str, str]:
    """ImageNet's and CLIP's statistics are one answer."""
    colour, scale = name.split(" ")
    return colour, {"CLIP": "ImageNet"}.get(scale, scale)


if __name__ == "__main__":
    main()
