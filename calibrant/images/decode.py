"""From an image file to an upright RGB picture: the one decoder of training, prediction, serving and the dashboard."""

from __future__ import annotations

import importlib
import importlib.util
import io
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from calibrant.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")
# Pictures that people have and that are not read: beside others they are counted and named, never passed over.
UNREAD_SUFFIXES = (
    ".heic", ".heif", ".avif", ".gif", ".jxl", ".jp2", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".raf", ".rw2",
)  # fmt: skip
MAX_PIXELS = 100_000_000
# Read where the library for them is installed, and from the files of a data set only: a server takes no more for it.
_MORE = {".avif": ("AVIF", "PIL._avif"), ".heic": ("HEIF", "pillow_heif"), ".heif": ("HEIF", "pillow_heif")}
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")  # a camera's MPO opens as JPEG; naming it is a KeyError
_QUICKLY_COPIED = 1 << 20  # bytes
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0  # a tag of TIFF, which Pillow obeys for 8 bits alone


@cache
def image_suffixes() -> tuple[str, ...]:
    """Endings of the pictures that are read here: those that are read everywhere, and what libraries add."""
    return (*IMAGE_SUFFIXES, *(end for end, (_, module) in _MORE.items() if _is_there(module)))


@cache
def unread_suffixes() -> tuple[str, ...]:
    return tuple(end for end in UNREAD_SUFFIXES if end not in image_suffixes())


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@cache
def _formats() -> tuple[str, ...]:
    more = dict.fromkeys(_MORE[end][0] for end in image_suffixes() if end in _MORE)
    if "HEIF" in more:
        importlib.import_module("pillow_heif").register_heif_opener()
    return (*_FORMATS, *more)


class _View(io.RawIOBase):
    """A file over bytes that are not copied."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        piece = self._data[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


def as_file(data: bytes | memoryview) -> IO[bytes]:
    """A copy where that is quick; a large one would keep all other threads waiting."""
    if isinstance(data, memoryview) and len(data) > _QUICKLY_COPIED:
        return io.BufferedReader(_View(data))
    return io.BytesIO(data)


def open_image(
    source: str | Path | bytes | memoryview,
    *,
    max_pixels: int = MAX_PIXELS,
    name: str | Path | None = None,
    at_least: int | None = None,
    own: bool = False,
) -> Image.Image:
    """An RGB image, upright (EXIF rotation applied), or a DataError that names the file.

    `own`: a file of the user's own data, of which formats are read that a server refuses (image_suffixes).
    `at_least`: a smaller version will do whose sides are no shorter than that, which JPEG decodes several times faster.

    The size is checked from the header before any pixel is decoded, so that a small file that unpacks to gigabytes is
    refused at no cost. Of samples of 16 bits the upper eight count, in grey as in colour. `name`: what errors call it.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    name = name or ("image" if isinstance(source, bytes | memoryview) else source)
    file = source if isinstance(source, str | Path) else as_file(source)
    try:
        with Image.open(file, formats=_formats() if own else _FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise DataError(f"{width} x {height} pixels are more than {max_pixels:,}", where=name)
            if at_least is not None:
                image.draft("RGB", (at_least, at_least))  # only JPEG knows how
            image.load()  # what cannot be decoded fails here
            try:
                upright = ImageOps.exif_transpose(image)
            except Exception:  # damaged EXIF says nothing about which side is up
                upright = image
            if upright.mode != "F" and not upright.mode.startswith("I"):
                return upright.convert("RGB")
            if upright.mode == "F" or (upright.mode == "I" and image.format != "PNG"):
                raise DataError("has samples of neither 8 nor 16 bits", where=name, fix="save it with one of them")
            tags = getattr(image, "tag_v2", None) or {}
            return _upper_bytes(upright, inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO)
    except (DataError, KeyboardInterrupt):
        raise
    except FileNotFoundError:
        raise DataError("no such file", where=name) from None
    except Image.DecompressionBombError:
        raise DataError(f"has more pixels than {max_pixels:,}", where=name) from None
    except UnidentifiedImageError:
        raise DataError("not a JPEG, PNG, WebP, BMP or TIFF image", where=name) from None
    except Exception as error:  # Pillow's decoders raise anything from OSError to struct.error on damaged bytes
        raise DataError(f"image cannot be decoded ({type(error).__name__}: {error})", where=name) from None


def _upper_bytes(image: Image.Image, *, inverted: bool) -> Image.Image:
    """RGB of grey with 16 bits. Pillow takes the upper byte in colour; of grey it cuts off at 255, so all is white."""
    from PIL import Image

    upper = (np.asarray(image) >> 8).astype(np.uint8)
    return Image.fromarray(255 - upper if inverted else upper).convert("RGB")
