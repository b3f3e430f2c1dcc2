"""The pictures that an adoption is tried on: random ones, and those given, decoded as often as preprocessing asks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.feature_table import FeatureTable, read_features
from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL
from calibrant.images.layouts import list_images
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import progress

log = logging.getLogger(__name__)
MOST = 200  # more change no diagnosis that matters


@dataclass(frozen=True)
class Pictures:
    images: ImageSet

    @classmethod
    def of(cls, data: str | Path, classes: Sequence[str], *, limit: int = MOST, independent: bool = False) -> Pictures:
        """Up to `limit` of a folder or file, spread over all; a split that was held out where there is one."""
        listing = list_images(Path(data))
        split = next((name for name in ("test", "val", ALL) if name in listing.sets), next(iter(listing.sets)))
        images = listing.known_to(classes, listing.of_split(split))
        known = np.flatnonzero(images.labels >= 0)
        if len(images) and 0 < len(known) < len(images):
            images = images.rows(known)
        if not len(images):
            raise DataError("has no pictures", where=data)
        chosen = np.unique(np.linspace(0, len(images) - 1, limit).round().astype(int))
        images = images.rows(chosen)
        if independent:  # the one label that a layout of pictures gives says nothing of the others
            images = replace(images, labels=np.full(len(images), -1, np.int64))
        return cls(images)

    @property
    def labelled(self) -> bool:
        return bool(np.all(self.images.labels >= 0))

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.images.labels

    def pixels(self, preprocessing: Preprocessing) -> NDArray[np.uint8]:
        shown = progress(range(len(self.images)), what="pictures", total=len(self.images), unit="img")
        return np.stack([preprocessing.pixels(self.images.image(i)) for i in shown])


def given_rows(data: str | Path, classes: Sequence[str], width: int, *, limit: int = MOST) -> FeatureTable:
    """Rows of numbers for a file that takes those, a split that was held out where there is one."""
    table = read_features(data, class_names=classes)
    if table.features.shape[1] != width:
        raise DataError(f"has {table.features.shape[1]} numbers a row, the file takes {width}", where=data)
    if table.split is not None:
        table = table.of_split(next((s for s in ("test", "val") if s in table.split), table.split[0]))
    return table.rows(np.unique(np.linspace(0, len(table) - 1, limit).round().astype(int)))


def random_pictures(count: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Pictures that differ by more than noise: each has a brightness of its own in each channel and corner."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, (count, 2, 2, 3)).astype(np.float64)
    rows, columns = (np.linspace(0, 1, n) for n in size)
    across = base[:, :, :1] * (1 - columns)[None, None, :, None] + base[:, :, 1:] * columns[None, None, :, None]
    whole = across[:, :1] * (1 - rows)[None, :, None, None] + across[:, 1:] * rows[None, :, None, None]
    return np.clip(whole + rng.normal(0, 20, (count, *size, 3)), 0, 255).astype(np.uint8)
