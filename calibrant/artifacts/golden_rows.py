"""Answers that a deployed file gave when it was written, kept in its card, so that whoever serves it can ask again.

The questions are made by a formula of whole numbers, so they need no place in the file and are the same everywhere; of
each answer the likeliest classes are kept. A file that answers otherwise is damaged, was changed by something else than
Calibrant, or is run by something that computes wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from calibrant.artifacts.model_card import ModelCard

ROWS, KEPT = 4, 5  # questions; classes of each answer
OUTPUT = "probabilities"
# Largest difference of a probability. Other processors add up in another order; where numbers are rounded to eight
# bits on the way (int8), to eleven (fp16), one that falls on the other side of a step is amplified.
TOLERANCE, TOLERANCE_ROUNDED = 0.002, 0.05

Run = Callable[[NDArray[Any]], NDArray[Any]]  # input [n, ...] -> probabilities [n, C]


def questions(card: ModelCard, rows: int = ROWS) -> NDArray[Any]:
    """Pictures of bands and gradients (rows of numbers where the file takes those), as the graph takes them."""
    height, width = card.preprocessing.size
    n, y, x, c = np.ogrid[0:rows, 0:height, 0:width, 0:3]
    if not card.input.pictures:
        values = (37 * n[..., 0] + 11 * x[..., 0] + 5 * x[..., 0] ** 2) % 17
        numbers: NDArray[np.float32] = (values[:, 0].astype(np.float32) - 8) / 4
        return numbers
    slope = 255 * (x * (n + 1) // width + y * (3 - n % 3) // height)
    pixels = ((slope + 61 * c + 97 * n + (x // 8 + y // 8 * (n + 1)) * 23) % 256).astype(np.uint8)
    return pixels if card.input.layout == "NHWC" else card.preprocessing.normalise(pixels)


def record(run: Run, card: ModelCard) -> dict[str, Any] | None:
    """For the card; None where the file cannot be asked without being told more (knobs that must be given)."""
    if card.knobs == "required" or OUTPUT not in card.outputs:
        return None
    probabilities = np.asarray(run(questions(card)), np.float64)
    likeliest = np.argsort(-probabilities, axis=1, kind="stable")[:, :KEPT]
    values = np.take_along_axis(probabilities, likeliest, axis=1)
    return {
        "rows": ROWS,
        "classes": likeliest.tolist(),
        "probabilities": [[round(float(v), 7) for v in row] for row in values],
    }


def tolerance(card: ModelCard) -> float:
    return TOLERANCE if card.precision.get("dtype", "float32") == "float32" else TOLERANCE_ROUNDED


def difference(run: Run, card: ModelCard) -> float | None:
    """Of the file's answers from the stored ones, at most; infinite where they are no numbers. None: nothing stored."""
    if card.golden is None:
        return None
    stored = np.asarray(card.golden["probabilities"], np.float64)
    answers = np.asarray(run(questions(card, len(stored))), np.float64)
    got = np.take_along_axis(answers, np.asarray(card.golden["classes"], np.int64), axis=1)
    return float(np.abs(got - stored).max()) if np.isfinite(answers).all() else float("inf")


def sound(block: Mapping[str, Any], classes: int) -> bool:
    """Whether a card's block is of the kind that `difference` relies on."""
    indices, values = block.get("classes"), block.get("probabilities")
    try:
        at, p = np.asarray(indices, np.int64), np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    if at.ndim != 2 or at.shape != p.shape or not 0 < at.size <= 1024:
        return False
    return bool(np.isfinite(p).all() and at.min() >= 0 and at.max() < classes)
