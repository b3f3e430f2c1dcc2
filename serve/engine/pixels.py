"""Pictures from callers, in whatever form, to the array that a deployed file takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.errors import DataError
from calibrant.images.decode import MAX_PIXELS, open_image
from calibrant.serve.protocol.errors import BadInput

Pixels = NDArray[np.uint8]


def pixels(card: ModelCard, images: Any, *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """uint8 [N, H, W, 3] from such an array, or from one or a list of paths, PIL images, encoded bytes or [h, w, 3]
    arrays. Arrays of exactly the model's size are taken as they are, as already transformed; everything else goes
    through the evaluation transform."""
    height, width = card.preprocessing.size
    if isinstance(images, np.ndarray) and images.ndim == 4:
        if images.dtype != np.uint8 or images.shape[3] != 3:
            raise DataError(
                f"expected uint8 [N, H, W, 3], got {images.dtype} {list(images.shape)}",
                where="images",
                fix="hand over pixels of 0..255 with the channels last; the file normalises them itself",
            )
        if images.shape[1:3] == (height, width):
            return images
        images = list(images)
    if isinstance(images, str | Path | bytes | np.ndarray) or not isinstance(images, Sequence):
        images = [images]
    if not len(images):
        return np.zeros((0, height, width, 3), np.uint8)
    return np.stack([one(card, image, max_pixels=max_pixels) for image in images])


def one(card: ModelCard, image: Any, *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """uint8 [H, W, 3] of a single picture."""
    from PIL import Image

    preprocessing = card.preprocessing
    if isinstance(image, str | Path | bytes):
        return preprocessing.pixels(open_image(image, max_pixels=max_pixels))
    if isinstance(image, bytearray | memoryview):
        return preprocessing.pixels(open_image(bytes(image), max_pixels=max_pixels))
    if isinstance(image, Image.Image):
        return preprocessing.pixels(image.convert("RGB"))
    if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        return image if image.shape[:2] == preprocessing.size else preprocessing.pixels(Image.fromarray(image))
    shape = f" {image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else ""
    raise DataError(
        f"an image must be a path, encoded bytes, a PIL image or uint8 [h, w, 3], got {type(image).__name__}{shape}",
        where="images",
    )


def decode(card: ModelCard, pictures: Sequence[tuple[str, bytes]], *, max_pixels: int) -> NDArray[Any]:
    """The model's input from named, encoded pictures, or a refusal that names the one that is none."""
    rows = []
    for name, data in pictures:
        try:
            rows.append(card.preprocessing.pixels(open_image(data, max_pixels=max_pixels)))
        except DataError as error:
            raise BadInput(f"{name}: {error.what}") from None
    return model_input(card, np.stack(rows))


def model_input(card: ModelCard, batch: Pixels) -> NDArray[Any]:
    """The batch in the type and layout of the graph's input."""
    if card.input.dtype == "uint8":
        return batch if card.input.layout == "NHWC" else np.ascontiguousarray(batch.transpose(0, 3, 1, 2))
    return card.preprocessing.normalise(batch)
