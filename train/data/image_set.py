"""Labelled images, on disk or in memory, and their division into training, validation and test sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.images.decode import open_image

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Slice:
    """An image inside a larger file."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        with open(self.path, "rb") as stream:
            stream.seek(self.offset)
            return stream.read(self.size)


class Packed(Protocol):
    """An image inside a file of many."""

    @property
    def path(self) -> Path: ...

    def read(self) -> bytes: ...


@dataclass(frozen=True)
class ImageSet:
    """Images in a fixed order: `files` to be decoded, or `pixels` (N, H, W, 3) uint8. A label of -1 is unknown."""

    ids: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,)
    files: tuple[Path | Packed, ...] | None = None
    pixels: NDArray[np.uint8] | None = None
    groups: tuple[str, ...] | None = None  # images of one group never go to two splits

    def __post_init__(self) -> None:
        count = len(self.files) if self.files is not None else len(self.pixels) if self.pixels is not None else -1
        if count != len(self.ids) or self.labels.shape != (count,):
            raise ValueError(f"{len(self.ids)} ids, {len(self.labels)} labels and {count} images")

    def __len__(self) -> int:
        return len(self.ids)

    def image(self, i: int) -> Image.Image:
        """RGB image i; a DataError names the file that cannot be read."""
        if self.pixels is not None:
            from PIL import Image

            return Image.fromarray(self.pixels[i])
        assert self.files is not None
        file = self.files[i]
        if isinstance(file, Path):
            return open_image(file)
        try:
            content = file.read()
        except DataError as error:
            raise DataError(error.what, where=self.ids[i]) from None
        return open_image(content, name=self.ids[i])

    def rows(self, index: NDArray[np.intp]) -> ImageSet:
        return ImageSet(
            tuple(self.ids[i] for i in index), self.labels[index],
            None if self.files is None else tuple(self.files[i] for i in index),
            None if self.pixels is None else self.pixels[index],
            None if self.groups is None else tuple(self.groups[i] for i in index),
        )  # fmt: skip

    def counts(self, num_classes: int) -> NDArray[np.int64]:
        """Images of each class."""
        return np.bincount(self.labels[self.labels >= 0], minlength=num_classes).astype(np.int64)


@dataclass(frozen=True)
class Splits:
    class_names: tuple[str, ...]
    train: ImageSet
    val: ImageSet
    test: ImageSet | None = None
