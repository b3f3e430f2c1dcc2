"""Views of an image with a part of another one in it, whose labels are shared by area.

cutmixN       a box of the other image (Yun et al. 2019), its share of the area even on [0, 1]
superpixelN   the most salient superpixels of the other image (`augment.mix.mix_superpixels` says whose method)
transplantN   the most salient patch of an image of a rare class, in images of frequent ones (`augment.transplant`)

Both images are random crops of their own. What the other one is, and where its part lies, is a function of (seed, view,
image): the same whoever makes it, in whatever order. Saliency is spectral, since a frozen network knows no class yet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.augment.donors import Donors
from calibrant.train.augment.mix import cut_box
from calibrant.train.augment.saliency import spectral_residual
from calibrant.train.augment.superpixels import salient_mask, superpixels
from calibrant.train.augment.transplant import transplant
from calibrant.train.config import AugmentConfig
from calibrant.train.heads.features.views import Pixels, random_crop
from calibrant.train.seeds import derive, generator

_NAME = re.compile(r"(cutmix|superpixel|transplant)[1-9][0-9]*")
_SETTINGS = AugmentConfig()
_PASTED = 3  # superpixels, as OcCaMix does


def is_mixed(view: str) -> bool:
    return _NAME.fullmatch(view) is not None


@dataclass(frozen=True)
class Mixture:
    """partner: row of the image that lent a part, the image's own where none did; share: of what is still its own."""

    pixels: Pixels
    partner: int
    share: float


class MixedViews:
    """Makes mixed views of the images of one split, of which any may lend a part to any other."""

    def __init__(self, images: ImageSet, preprocessing: Preprocessing, seed: int) -> None:
        self.images, self.preprocessing, self.seed = images, preprocessing, seed
        self._donors = lru_cache(maxsize=None)(self._draw_donors)

    def make(self, view: str, row: int) -> Mixture:
        found = _NAME.fullmatch(view)
        if found is None:
            raise ValueError(f"{view} is no mixed view")
        kind = found[1]
        own = self._crop(row, view, "own")
        partner = self._donors(view).get(row) if kind == "transplant" else self._other(row, view)
        if partner is None or self.images.labels[row] < 0:
            return Mixture(own, row, 1.0)
        other = self._crop(partner, view, row)
        rng = generator(self.seed, "mix", view, self.images.ids[row])
        if kind == "cutmix":
            pixels, share = _cutmix(own, other, rng)
        elif kind == "superpixel":
            pixels, share = self._superpixels(own, other, rng)
        else:
            pixels, share = _transplant(own, other, rng)
        return Mixture(pixels, partner, share)

    def _crop(self, row: int, view: str, purpose: int | str) -> Pixels:
        rng = generator(self.seed, "view", view, self.images.ids[row], purpose)
        return random_crop(self.images.image(row), self.preprocessing, rng)

    def _other(self, row: int, view: str) -> int | None:
        """Any other image with a label."""
        known = self._known()
        if len(known) < 2:
            raise DataError("one image has no other to be mixed with", where=view)
        rng = generator(self.seed, "partner", view, self.images.ids[row])
        partner = int(known[rng.integers(len(known) - 1)])
        return int(known[-1]) if partner == row else partner

    def _known(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.images.labels >= 0)

    def _draw_donors(self, view: str) -> dict[int, int]:
        labels = self.images.labels
        counts = np.bincount(labels[labels >= 0]).astype(np.float64)
        try:
            donors = Donors(labels, counts, rate=1.0, seed=derive(self.seed, view))
        except ConfigError as error:
            raise ConfigError(error.what, where=f"--view {view}", fix="leave it out") from None
        rows, lent = donors.draw(labels, 0, np.arange(len(labels), dtype=np.int64))
        return dict(zip(rows.tolist(), lent.tolist(), strict=True))

    def _superpixels(self, own: Pixels, other: Pixels, rng: np.random.Generator) -> tuple[Pixels, float]:
        x = torch.from_numpy(self.preprocessing.normalise(other[None]))
        low, high = _SETTINGS.superpixels
        regions = superpixels(x, int(rng.integers(low, high + 1)))
        mask = salient_mask(regions, spectral_residual(x), _PASTED, (own.shape[0], own.shape[1]))[0].numpy()
        return np.where(mask[:, :, None], other, own), 1.0 - float(mask.mean())


def _cutmix(own: Pixels, other: Pixels, rng: np.random.Generator) -> tuple[Pixels, float]:
    height, width = own.shape[:2]
    top, bottom, left, right = cut_box(float(rng.beta(1.0, 1.0)), height, width, rng)
    mixed = own.copy()
    mixed[top:bottom, left:right] = other[top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)


def _transplant(own: Pixels, other: Pixels, rng: np.random.Generator) -> tuple[Pixels, float]:
    x, donor = (torch.from_numpy(p.astype(np.float32)).permute(2, 0, 1)[None] for p in (own, other))
    label = torch.zeros(1, dtype=torch.int64)  # spectral saliency asks for none
    mixed, left = transplant(x, donor, spectral_residual, label, label, _SETTINGS.transplant_area, rng)
    return mixed[0].permute(1, 2, 0).numpy().astype(np.uint8), float(left[0])
