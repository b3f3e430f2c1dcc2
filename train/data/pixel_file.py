"""Decoded pixels on disk: runs, processes and loader workers share one file and its pages.

KEY.pixels holds the images one after the other, KEY.json their shapes; the second is written last, so what it
describes is whole. KEY is made of the files' names, sizes and times and of what was done to the pixels: a changed image
or another size gives another key. Nothing is ever deleted here; the folder is a cache and may be.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from calibrant.atomic import replacing, write_json
from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.train.data.pixels import ArrayStore, BadImage, Pixels, PixelStore, RaggedStore, decode_each

log = logging.getLogger(__name__)

FORMAT_VERSION = 1


def pixels_on_disk(
    images: ImageSet,
    prepare: Callable[[Image.Image], Pixels],
    folder: Path,
    *,
    recipe: Mapping[str, Any],
    what: str,
    skip_bad: bool,
) -> tuple[PixelStore, NDArray[np.intp], list[BadImage]]:
    """The decoded set, the rows that could be read, and those that could not; decoded only if the folder lacks it.

    recipe: all that decides what `prepare` makes of an image. With skip_bad=False an unreadable image raises.
    """
    key = _key(images, recipe)
    data, index = folder / f"{key}.pixels", folder / f"{key}.json"
    block = _read(index, data)
    if block is None:
        try:
            block = _decode(images, prepare, data, what=what, skip_bad=skip_bad)
            write_json(index, block)
        except PermissionError as error:
            raise DataError(f"cannot be written to ({error.strerror})", where=folder) from None
    else:
        log.info("%s are read from %s", what, data)
    bad = [BadImage(*pair) for pair in block["bad"]]
    if bad and not skip_bad:
        raise DataError(bad[0].why, where=bad[0].id)
    rows = np.asarray(block["rows"], np.intp)
    shapes = [(int(h), int(w), 3) for h, w in block["shapes"]]
    flat: NDArray[np.uint8] = np.memmap(data, np.uint8, "r") if shapes else np.zeros(0, np.uint8)
    if shapes and all(s == shapes[0] for s in shapes):
        return ArrayStore(flat.reshape(len(shapes), *shapes[0])), rows, bad
    return RaggedStore(flat, shapes), rows, bad


def _key(images: ImageSet, recipe: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(json.dumps([FORMAT_VERSION, dict(recipe)], sort_keys=True).encode(), digest_size=12)
    if images.pixels is not None:
        digest.update(np.ascontiguousarray(images.pixels).tobytes())
    times: dict[Path, tuple[int, int]] = {}
    for name, file in zip(images.ids, images.files or (), strict=False):
        path = file if isinstance(file, Path) else file.path
        if path is None:
            raise ConfigError(
                "keeps the pixels of files, and these come from somebody's data set, which may have changed",
                where="data.cache_dir",
                fix="leave it out",
            )
        if path not in times:
            try:
                stat = path.stat()
                times[path] = (stat.st_size, stat.st_mtime_ns)
            except OSError:
                times[path] = (-1, -1)
        place = str(path.resolve()) if isinstance(file, Path) else repr(file)
        digest.update(repr((name, place, times[path])).encode())
    return digest.hexdigest()


def _read(index: Path, data: Path) -> dict[str, Any] | None:
    """What is known of a whole pair of files, or None."""
    try:
        block: dict[str, Any] = json.loads(index.read_text())
        size = sum(3 * h * w for h, w in block["shapes"])
        whole = data.stat().st_size == size and len(block["rows"]) == len(block["shapes"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return block if whole else None


def _decode(
    images: ImageSet, prepare: Callable[[Image.Image], Pixels], data: Path, *, what: str, skip_bad: bool
) -> dict[str, Any]:
    shapes: list[list[int]] = []
    rows: list[int] = []
    bad: list[list[str]] = []
    with replacing(data) as temporary, open(temporary, "wb") as stream:
        for i, result in decode_each(images, prepare, what=what, skip_bad=skip_bad):
            if isinstance(result, BadImage):
                bad.append([result.id, result.why])
                continue
            stream.write(np.ascontiguousarray(result).data)
            shapes.append([result.shape[0], result.shape[1]])
            rows.append(i)
    return {"kind": "pixels", "format_version": FORMAT_VERSION, "shapes": shapes, "rows": rows, "bad": bad}
