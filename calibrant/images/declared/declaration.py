"""How pictures are prepared for a network, as somebody declares it, and what of that is only a guess."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrant.errors import DataError
from calibrant.images.preprocessing import Preprocessing

Three = tuple[float, float, float]
SCALED: tuple[Three, Three] = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))  # 0..1, no mean
BYTES: tuple[Three, Three] = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))  # 0..255


@dataclass(frozen=True)
class Declared:
    """Mean and standard deviation are of red, green, blue in 0..1, whatever order the network wants."""

    preprocessing: Preprocessing
    bgr: bool = False
    source: str = "a guess"
    guesses: tuple[str, ...] = ()

    @property
    def guessed(self) -> bool:
        return self.source == "a guess"

    def with_size(self, size: tuple[int, int]) -> Declared:
        """For a graph of another size than was declared: the same share of the picture is cropped."""
        p = self.preprocessing
        if p.size == size:
            return self
        resize = max(max(size), round(p.resize * max(size) / max(p.size)))
        told = f"made for {p.size[0]} x {p.size[1]} pictures, the graph takes {size[0]} x {size[1]}"
        return replace(self, preprocessing=replace(p, size=size, resize=resize), guesses=(*self.guesses, told))


def three(values: Any, name: str, where: str | Path) -> Three:
    """Three numbers of a config; one stands for all."""
    try:
        found = [float(v) for v in (values if isinstance(values, (list, tuple)) else [values])]
    except (TypeError, ValueError):
        found = []
    if len(found) == 1:
        found *= 3
    if len(found) != 3:
        raise DataError(f"{name} is {values}, expected three numbers", where=where)
    return found[0], found[1], found[2]
