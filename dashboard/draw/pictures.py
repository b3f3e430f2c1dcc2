"""The picture behind a row, where the data are at hand and may be read. Decoded with care: files can be hostile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant.dashboard.folder.artifacts import FolderIndex, PredictionsRef, Run
from calibrant.dashboard.folder.files import Stamp, inside, stamp
from calibrant.errors import CalibrantError, DataError
from calibrant.images.decode import open_image
from calibrant.images.image_set import Given, ImageSet
from calibrant.images.layouts import layout_of, list_images

if TYPE_CHECKING:
    from PIL import Image

MAX_BYTES = 64 << 20
MAX_PIXELS = 64_000_000
_SPLITS = ("train", "val", "test")


def folders(
    folder_index: FolderIndex, run: Run, predictions: PredictionsRef, named: Iterable[Path]
) -> tuple[Path, ...]:
    """Folders that the ids of the predictions may be relative to, all below the dashboard's folder or a --images one.

    Ids may be relative to the folder of their split: train/a/1.png and test/a/1.png are both "a/1.png", so where a
    folder has splits the right one is looked at, and the folder itself for ids like "test/a/1.png".
    """
    named = tuple(named)
    candidates = list(named)
    owner = predictions.source.model.get("run")
    related = [run, *(r for r in folder_index.runs if r.path.name == owner)]
    candidates += [path for r in related for path in _configured(r)]
    candidates += [base / "images" for r in related for base in (r.path, r.path.parent)]
    allowed = (folder_index.root, *named)
    found: list[Path] = []
    for folder in candidates:
        if folder.exists() and any(inside(root, folder) for root in allowed):
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


@dataclass(frozen=True)
class Shown:
    """A picture that may be shown: a file, or what lies in row `row` of data in another layout."""

    file: Stamp
    row: int | None = None


def find(where: tuple[Path, ...], name: str) -> Shown | None:
    """The picture of an id; never one outside of the folders, whatever the id, or a list in them, says."""
    if "\0" in name:
        return None
    for folder in where:
        path = folder / name
        if inside(folder, path) and path.is_file():
            return Shown(stamp(path))
        data = _data(stamp(folder))
        row = None if data is None else data.rows.get(name)
        if data is not None and row is not None:
            place = data.images.place(row)
            if place is None or inside(folder if folder.is_dir() else folder.parent, place):
                return Shown(stamp(folder), row)
    return None


@dataclass(frozen=True)
class _Data:
    images: ImageSet
    rows: dict[str, int]


@lru_cache(8)
def _data(place: Stamp) -> _Data | None:
    """What lies there in a layout whose ids are not the names of files; None where they are, or nothing is."""
    try:
        kind = layout_of(place.path)
        if kind == "folder":
            return None
        images = list_images(place.path, layout=kind).whole()
    except CalibrantError:
        return None
    return _Data(images, {name: i for i, name in enumerate(images.ids)})


def thumbnail(shown: Shown, side: int) -> Image.Image:
    return _thumbnail(shown, side)


@lru_cache(1024)
def _thumbnail(shown: Shown, side: int) -> Image.Image:
    image = whole(shown)
    image.thumbnail((side, side))
    return image


def whole(shown: Shown) -> Image.Image:
    """In its own size, and not kept."""
    name = shown.file.path.name
    if shown.row is not None:
        data = _data(shown.file)
        if data is None:
            raise DataError("is no longer there", where=name)
        images, place = data.images, data.images.place(shown.row)
        if images.files is None:
            return images.image(shown.row)
        if place is None or place.stat().st_size > MAX_BYTES and place == images.files[shown.row]:
            raise DataError("is too large to show", where=name)
        file = images.files[shown.row]
        if isinstance(file, Given):
            return images.image(shown.row)
        return decode(file.read_bytes() if isinstance(file, Path) else file.read(), name=images.ids[shown.row])
    if shown.file.size > MAX_BYTES:
        raise DataError("is too large to show", where=name)
    return decode(shown.file.path.read_bytes(), name=name)


def decode(content: bytes, *, name: str) -> Image.Image:
    """An RGB picture, as training and serving see it; named without its folder."""
    return open_image(content, max_pixels=MAX_PIXELS, name=name)
