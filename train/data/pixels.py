"""Where training gets pixels: every image decoded once and kept, or decoded from its file each time.

Decoding is what a loader spends its time on (1,800 JPEGs a second and core at 286 x 242, against 8,000 crops from
decoded pixels), so a set that fits into memory is decoded once. Worker processes share the pages.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.progress import bar

log = logging.getLogger(__name__)

Pixels = NDArray[np.uint8]  # (H, W, 3)
MARGIN = 1.2  # a kept image is this much larger than the crop, so that random crops have something to choose from


class PixelStore(Protocol):
    """Image i as uint8 (H, W, 3); sizes may differ from image to image."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> Pixels: ...


class FileStore:
    """Decodes at each access; raises a DataError that names the file."""

    def __init__(self, images: ImageSet, prepare: Callable[[Image.Image], Pixels]) -> None:
        self.images, self.prepare = images, prepare

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Pixels:
        return self.prepare(self.images.image(i))


class RaggedStore:
    """Decoded images of any sizes, one after the other in one array."""

    def __init__(self, flat: NDArray[np.uint8], shapes: Sequence[tuple[int, ...]]) -> None:
        self.flat, self.shapes = flat, shapes
        self.starts = np.concatenate([[0], np.cumsum([math.prod(s) for s in shapes])]).astype(np.int64)

    @classmethod
    def of_parts(cls, parts: Sequence[Pixels]) -> RaggedStore:
        store = cls(np.empty(sum(p.size for p in parts), np.uint8), [p.shape for p in parts])
        for start, part in zip(store.starts, parts, strict=False):
            store.flat[start : start + part.size] = part.reshape(-1)
        return store

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, i: int) -> Pixels:
        return self.flat[self.starts[i] : self.starts[i + 1]].reshape(self.shapes[i])


@dataclass(frozen=True)
class ArrayStore:
    """Decoded images of one size, (N, H, W, 3)."""

    array: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, i: int) -> Pixels:
        return self.array[i]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class BadImage:
    id: str
    why: str


def whole(image: Image.Image) -> Pixels:
    return np.asarray(image, np.uint8)


def shrunk(preprocessing: Preprocessing) -> Callable[[Image.Image], Pixels]:
    """The whole image with its shorter side at MARGIN times the crop; smaller images stay as they are."""
    short = math.ceil(MARGIN * max(preprocessing.size))
    filter_ = getattr(Image.Resampling, preprocessing.interpolation.upper())

    def prepare(image: Image.Image) -> Pixels:
        scale = short / min(image.size)
        if scale < 1:
            image = image.resize((round(image.width * scale), round(image.height * scale)), filter_)
        return np.asarray(image, np.uint8)

    return prepare


def estimated_bytes(images: ImageSet, preprocessing: Preprocessing, *, ragged: bool) -> int:
    """Memory of the decoded set; ragged images count with a typical aspect ratio of 4:3."""
    height, width = preprocessing.size
    per_image = 3 * height * width * (MARGIN * MARGIN * 4 / 3 if ragged else 1.0)
    return int(len(images) * per_image)


def decode_each(
    images: ImageSet, prepare: Callable[[Image.Image], Pixels], *, what: str, skip_bad: bool
) -> Iterator[tuple[int, Pixels | BadImage]]:
    """All images through `prepare`, in order. With skip_bad=False the first unreadable image raises its DataError."""

    def one(i: int) -> Pixels | BadImage:
        try:
            return prepare(images.image(i))
        except DataError as error:
            if not skip_bad:
                raise
            return BadImage(images.ids[i], error.what)

    # Pillow lets other threads run while it decodes. In pieces, since map() would hold all results that wait.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, bar(what=what, total=len(images), unit="img") as shown:
        for first in range(0, len(images), 1024):
            piece = range(first, min(first + 1024, len(images)))
            for i, result in zip(piece, pool.map(one, piece), strict=True):
                yield i, result
                shown.update(1)


def decode_all(
    images: ImageSet, prepare: Callable[[Image.Image], Pixels], *, what: str, skip_bad: bool
) -> tuple[list[Pixels], NDArray[np.intp], list[BadImage]]:
    """The decoded images, the rows that could be read, and those that could not."""
    parts: list[Pixels] = []
    rows: list[int] = []
    bad: list[BadImage] = []
    for i, result in decode_each(images, prepare, what=what, skip_bad=skip_bad):
        if isinstance(result, BadImage):
            bad.append(result)
        else:
            parts.append(result)
            rows.append(i)
    return parts, np.asarray(rows, np.intp), bad


def store_of(parts: list[Pixels]) -> PixelStore:
    """An array where all images have one size, else a ragged store."""
    if parts and all(p.shape == parts[0].shape for p in parts):
        return ArrayStore(np.stack(parts))
    return RaggedStore.of_parts(parts)
