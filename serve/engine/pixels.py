"""Pictures from callers, in whatever form, to the array that a deployed file takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import DataError
from calibrant.images.decode import MAX_PIXELS, open_image
from calibrant.progress import bar
from calibrant.serve.engine import forms
from calibrant.serve.protocol.errors import BadInput

Pixels = NDArray[Any]  # uint8 pictures, or float32 rows of a file that takes those


def pixels(card: ModelCard, images: Any, *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """uint8 [N, H, W, 3] from pictures in any form that `pictures.forms` knows.

    Arrays of exactly the model's size are taken as they are, as already transformed; everything else goes through the
    evaluation transform."""
    if not card.input.pictures:
        return rows_of_numbers(card, images)
    height, width = card.preprocessing.size
    listed = forms.listed(images)
    if isinstance(listed, np.ndarray) and listed.shape[1:3] == (height, width):
        return listed
    if not len(listed):
        return np.zeros((0, height, width, 3), np.uint8)
    return np.stack([one(card, image, max_pixels=max_pixels) for image in listed])


def in_parts(card: ModelCard, images: Any, *, rows: int) -> Iterator[Pixels]:
    """The same so many at a time: a folder's pictures need not fit into memory together."""
    if not card.input.pictures:
        yield rows_of_numbers(card, images)
        return
    listed = forms.listed(images)
    if len(listed) <= rows:
        yield pixels(card, listed)
        return
    with bar(what="predict", total=len(listed), unit="img") as shown:
        for start in range(0, len(listed), rows):
            part = listed[start : start + rows]
            yield pixels(card, part)
            shown.update(len(part))


def rows_of_numbers(card: ModelCard, rows: Any) -> NDArray[np.float32]:
    """float32 [N, F], of anything that numpy makes such a table of."""
    width = card.preprocessing.size[1]
    try:
        table = np.asarray(rows, np.float32)
    except (TypeError, ValueError):
        raise DataError(f"expected rows of {width} numbers", where="rows") from None
    if table.ndim != 2 or table.shape[1] != width:
        raise DataError(f"expected [N, {width}] numbers, got {list(table.shape)}", where="rows")
    if not np.isfinite(table).all():
        row = int(np.isfinite(table).all(axis=1).argmin())
        raise DataError(f"row {row} holds NaN or infinity", where="rows")
    return np.ascontiguousarray(table)


def one(card: ModelCard, image: Any, *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """uint8 [H, W, 3] of a single picture."""
    from PIL import Image

    preprocessing = card.preprocessing
    if isinstance(image, bytearray):
        image = memoryview(image)
    if isinstance(image, str | Path | bytes | memoryview):
        return preprocessing.pixels(open_image(image, max_pixels=max_pixels))
    if isinstance(image, Image.Image):
        return preprocessing.pixels(image.convert("RGB"))
    array = forms.picture(image)
    return array if array.shape[:2] == preprocessing.size else preprocessing.pixels(Image.fromarray(array))


def decode(card: ModelCard, pictures: Sequence[tuple[str, bytes | memoryview]], *, max_pixels: int) -> NDArray[Any]:
    """The model's input from named, encoded pictures, or a refusal that names the one that is none."""
    if not card.input.pictures:
        width = card.preprocessing.size[1]
        raise BadInput(f'the model takes rows of {width} numbers, no pictures: send the tensor "{card.input.name}"')
    rows = []
    for name, data in pictures:
        try:
            rows.append(card.preprocessing.pixels(open_image(data, max_pixels=max_pixels)))
        except DataError as error:
            raise BadInput(f"{name}: {error.what}") from None
    return model_input(card, np.stack(rows))


def model_input(card: ModelCard, batch: Pixels) -> NDArray[Any]:
    """The batch in the type and layout of the graph's input."""
    if not card.input.pictures:
        return batch
    if card.input.dtype == "uint8":
        return batch if card.input.layout == "NHWC" else np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
    return card.preprocessing.normalise(batch)
