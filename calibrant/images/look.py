"""How a picture looks, in a few numbers, and how unusual that is among others: no network is asked.

A network can be sure of a blank sheet, and then no score of its answers tells. Light, colour, contrast and detail do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

SIDE = 64
FLAT = 2 / 255  # contrast below which nothing can be seen
_RIDGE = 1e-3


def look(image: Image.Image) -> NDArray[np.float64]:
    """(7,): mean and spread of the light, mean red and blue beside it, saturation, detail, share of it that is fine."""
    small = image.convert("RGB").resize((SIDE, SIDE))
    rgb = np.asarray(small, np.float64) / 255
    light = rgb.mean(axis=2)
    across, down = np.diff(light, axis=1), np.diff(light, axis=0)
    detail = float(np.abs(across).mean() + np.abs(down).mean())
    coarse = light.reshape(SIDE // 4, 4, SIDE // 4, 4).mean(axis=(1, 3))
    fine = float(light.std() - coarse.std())
    red, green, blue = rgb.mean(axis=(0, 1))
    saturation = float((rgb.max(axis=2) - rgb.min(axis=2)).mean())
    return np.array([
        light.mean(), light.std(), red - green, blue - green, saturation, np.log(detail + 1e-3), np.log(fine + 1e-3),
    ])  # fmt: skip


def is_flat(values: NDArray[np.float64]) -> bool:
    """Hardly anything to be seen: one colour."""
    return bool(values[1] < FLAT)


class Looks:
    """How far a picture's look lies from that of known ones, as the share of these that lie nearer."""

    def __init__(self, known: Sequence[NDArray[np.float64]]) -> None:
        x = np.array(known)
        self.mean = x.mean(axis=0)
        rest = x - self.mean
        covariance = rest.T @ rest / max(1, len(x) - 1)
        spread = np.sqrt(np.maximum(np.diag(covariance), 1e-8))
        correlation = covariance / np.outer(spread, spread) + _RIDGE * np.eye(len(spread))
        self.whiten = np.linalg.inv(np.linalg.cholesky(correlation)) / spread
        self.known = np.sort([self.distance(values) for values in x])

    def distance(self, values: NDArray[np.float64]) -> float:
        return float(np.linalg.norm(self.whiten @ (values - self.mean)))

    def unusual(self, values: NDArray[np.float64]) -> float:
        """Share of the known ones that are less unusual."""
        return float(np.searchsorted(self.known, self.distance(values), side="left") / len(self.known))
