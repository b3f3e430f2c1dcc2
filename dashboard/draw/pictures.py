"""The picture behind a row, where the data are at hand and may be read. Decoded with care: files can be hostile."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.dashboard.folder.artifacts import PredictionsRef, Run, Shelf
from calibrant.dashboard.folder.files import Stamp, inside, stamp
from calibrant.errors import DataError
from calibrant.images.decode import open_image

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 64 << 20
MAX_PIXELS = 64_000_000
_SPLITS = ("train", "val", "test")


def folders(shelf: Shelf, run: Run, predictions: PredictionsRef, named: Iterable[Path]) -> tuple[Path, ...]:
    """Folders that the ids of the predictions may be relative to, all below the dashboard's folder or a --images one.

    Ids may be relative to the folder of their split: train/a/1.png and test/a/1.png are both "a/1.png", so where a
    folder has splits the right one is looked at, and the folder itself for ids like "test/a/1.png".
    """
    named = tuple(named)
    candidates = list(named)
    owner = predictions.source.model.get("run")
    related = [run, *(r for r in shelf.runs if r.path.name == owner)]
    candidates += [path for r in related for path in _configured(r)]
    candidates += [base / "images" for r in related for base in (r.path, r.path.parent)]
    allowed = (shelf.root, *named)
    found: list[Path] = []
    for folder in candidates:
        if folder.is_dir() and any(inside(root, folder) for root in allowed):
            splits = [folder / s for s in _SPLITS if (folder / s).is_dir()]
            exact = folder / predictions.name
            found += [exact, folder] if exact in splits else [folder]
    return tuple(dict.fromkeys(found))


def _configured(run: Run) -> list[Path]:
    config = (run.config or {}).get("config")
    data = config.get("data") if isinstance(config, dict) else None
    path = data.get("path") if isinstance(data, dict) else None
    if not isinstance(path, str) or "\0" in path:
        return []
    # A relative path was relative to where training was started: try the usual places.
    return [run.path / path, run.path.parent / path, run.path.parent.parent / path]


def find(where: tuple[Path, ...], name: str) -> Path | None:
    """The file of an id; never one outside of the folders, whatever the id says."""
    if "\0" in name:
        return None
    for folder in where:
        path = folder / name
        if inside(folder, path) and path.is_file():
            return path
    return None


def thumbnail(path: Path, side: int) -> Image.Image:
    return _thumbnail(stamp(path), side)


@lru_cache(1024)
def _thumbnail(file: Stamp, side: int) -> Image.Image:
    image = whole(file)
    image.thumbnail((side, side))
    return image


def whole(file: Stamp) -> Image.Image:
    """In its own size, and not kept."""
    if file.size > MAX_BYTES:
        raise DataError("is too large to show", where=file.path.name)
    with open(file.path, "rb") as stream:
        return decode(stream.read(), name=file.path.name)


def decode(content: bytes, *, name: str) -> Image.Image:
    """An RGB picture, as training and serving see it; named without its folder."""
    return open_image(content, max_pixels=MAX_PIXELS, name=name)
