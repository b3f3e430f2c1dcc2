"""Two perceptual hashes of an image: what looks the same has nearly the same bits, however it was saved.

pHash  the 64 lowest frequencies of a 32 x 32 grey picture (DCT II), each above or below their median
dHash  9 x 8 grey picture: is each point brighter than its right neighbour?

Two images are near-duplicates where the bits that differ are 12 or fewer of the 128 (docs/fit.md has how that was
found: either hash alone takes plain sky, or two leaves on white paper, for one picture).
Source: the hashes as in Zauner 2010 and Krawetz 2013. Differs: one decoded picture serves both.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

NEAR = 12  # bits of both hashes together
SIDE = 32
_FLAT = 2.0  # standard deviation of grey values below which nothing is to be seen


def hashes(image: Image.Image) -> tuple[int, int]:
    """(pHash, dHash) as unsigned 64-bit numbers."""
    from PIL.Image import Resampling

    grey = image.convert("L")
    square = np.asarray(grey.resize((SIDE, SIDE), Resampling.BOX), np.float64)
    low = (_dct() @ square @ _dct().T).reshape(-1)
    steps = np.asarray(grey.resize((9, 8), Resampling.BOX), np.int16)
    return _packed(low > np.median(low)), _packed((steps[:, 1:] > steps[:, :-1]).reshape(-1))


def is_blank(image: Image.Image) -> bool:
    """One colour, or nearly: its hashes are noise."""
    return bool(np.asarray(image.convert("L")).std() < _FLAT)


@lru_cache(1)
def _dct() -> NDArray[np.float64]:
    """(8, 32) the eight lowest rows of the DCT II."""
    k, n = np.arange(8)[:, None], np.arange(SIDE)[None]
    rows: NDArray[np.float64] = np.cos(np.pi / SIDE * (n + 0.5) * k)
    return rows


def _packed(bits: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(bits).tobytes())
