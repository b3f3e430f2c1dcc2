"""One look at each image: can it be read, how large is it, and what are its hashes? About a millisecond each."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from calibrant.errors import DataError
from calibrant.images.audit.fingerprint import SIDE, hashes, is_blank
from calibrant.images.decode import open_image
from calibrant.images.image_set import Given, ImageSet, Packed
from calibrant.progress import progress


@dataclass(frozen=True)
class Look:
    """What was seen of one image; `trouble` says why there is nothing to be seen."""

    id: str
    sha256: str = ""
    width: int = 0
    height: int = 0
    p_hash: int = 0
    d_hash: int = 0
    blank: bool = False
    trouble: str | None = None


def look_at(images: ImageSet, *, workers: int = 1) -> list[Look]:
    """A look at every image, in their order."""

    def shown(looks: Iterable[Look]) -> list[Look]:
        return list(progress(looks, what="looking at the images", total=len(images), unit="img"))

    if workers < 2:
        return shown(_look(images, i) for i in range(len(images)))
    with ThreadPoolExecutor(workers) as pool:
        return shown(pool.map(lambda i: _look(images, i), range(len(images))))


def _look(images: ImageSet, i: int) -> Look:
    id = images.ids[i]
    try:
        file = None if images.files is None else images.files[i]
        if file is None or isinstance(file, Given):  # pixels, or a data set's own picture: there is no file to read
            image = images.image(i)
            content = image.tobytes()
            width, height = image.size
        else:
            content = _content(file, id)
            width, height = _size(content)
            image = open_image(content, name=id, at_least=2 * SIDE, own=True)
    except DataError as error:
        return Look(id, trouble=error.what)
    p, d = hashes(image)
    return Look(id, hashlib.sha256(content).hexdigest(), width, height, p, d, is_blank(image))


def _content(file: Path | Packed, id: str) -> bytes:
    try:
        return file.read_bytes() if isinstance(file, Path) else file.read()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", where=id) from None


def _size(content: bytes) -> tuple[int, int]:
    """Of the header; what is no image is told by the decoder."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.size
    except Exception:
        return 0, 0
