"""Images in one order, wherever they lie: files, rows of shards, or pixels in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

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
    """An image inside a file of many. Where it has a `shard`, that streams many of them in order."""

    @property
    def path(self) -> Path: ...

    def read(self) -> bytes: ...


@runtime_checkable
class Given(Protocol):
    """An image that somebody's data set gives when it is asked."""

    @property
    def path(self) -> Path | None: ...

    def picture(self) -> Image.Image: ...


@dataclass(frozen=True)
class ImageSet:
    """Images in a fixed order: `files` to be decoded, or `pixels` (N, H, W, 3) uint8. A label of -1 is unknown."""

    ids: tuple[str, ...]
    labels: NDArray[np.int64]  # (N,)
    files: tuple[Path | Packed | Given, ...] | None = None
    pixels: NDArray[np.uint8] | None = None
    groups: tuple[str, ...] | None = None  # images of one group never go to two splits
    label_names: tuple[str | None, ...] | None = None  # of the data, where a model knows only some of them

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
        if isinstance(file, Given):
            return file.picture()
        if isinstance(file, Path):
            return open_image(file, own=True)
        try:
            content = file.read()
        except DataError as error:
            raise DataError(error.what, where=self.ids[i]) from None
        return open_image(content, name=self.ids[i], own=True)

    def in_order(self, start: int, stop: int) -> Iterator[tuple[int, Callable[[], Image.Image]]]:
        """Rows `start` up to `stop` with what decodes each, for any thread. Shards are read as a stream, so that a row
        group of any size is never in memory as a whole.
        """
        files = self.files or (None,) * len(self)
        for shard, rows in groupby(range(start, stop), key=lambda i: getattr(files[i], "shard", None)):
            if shard is None:
                yield from ((i, partial(self.image, i)) for i in rows)
                continue
            some = list(rows)
            for i, content in zip(some, shard.stream([files[i] for i in some]), strict=True):
                yield i, partial(self._of_content, i, content)

    def _of_content(self, i: int, content: Callable[[], bytes]) -> Image.Image:
        try:
            return open_image(content(), name=self.ids[i], own=True)
        except DataError as error:
            raise DataError(error.what, where=self.ids[i], fix=error.fix) from None

    def place(self, i: int) -> Path | None:
        """The file that image i is in or is."""
        file = None if self.files is None else self.files[i]
        return file if file is None or isinstance(file, Path) else file.path

    def rows(self, index: NDArray[np.intp]) -> ImageSet:
        def of(values: Sequence[Any] | None) -> Any:
            return None if values is None else tuple(values[i] for i in index)

        pixels = None if self.pixels is None else self.pixels[index]
        return ImageSet(of(self.ids), self.labels[index], of(self.files), pixels, of(self.groups), of(self.label_names))

    def counts(self, num_classes: int) -> NDArray[np.int64]:
        """Images of each class."""
        return np.bincount(self.labels[self.labels >= 0], minlength=num_classes).astype(np.int64)
