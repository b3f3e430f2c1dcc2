"""Images to predict on: a folder with class folders, or with images only; the same reading as training's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from calibrant.errors import DataError, did_you_mean
from calibrant.images.decode import IMAGE_SUFFIXES
from calibrant.serve.batch.picture_source import Content, Picture

_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}


class Folder:
    """In order of class and path: FOLDER/CLASS/*.jpg, or images without labels. An id is the path below FOLDER."""

    def __init__(self, folder: Path, class_names: Sequence[str]) -> None:
        inner = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
        strange = [name for name in inner if name not in class_names]
        if strange:
            raise DataError(
                f'"{strange[0]}" is not a class of the model', where=folder, fix=did_you_mean(strange[0], class_names)
            )
        wanted = [(folder, -1)] if not inner else [(folder / n, k) for k, n in enumerate(class_names) if n in inner]
        self.pictures: list[Picture] = [
            Picture(_id(p.relative_to(folder)), p, k) for place, k in wanted for p in _files(place)
        ]
        if not self.pictures:
            kinds = ", ".join(s[1:] for s in IMAGE_SUFFIXES)
            raise DataError(f"holds no images ({kinds})", where=folder)

    def contents(self, start: int, stop: int) -> Iterator[tuple[Picture, Content]]:
        for picture in self.pictures[start:stop]:
            yield picture, partial(Path, picture.path)


def _id(path: Path) -> str:
    """The path as text; bytes of a name that are none stand as \\xff."""
    return os.fsencode(path.as_posix()).decode(errors="backslashreplace")


def split_folder(folder: Path, split: str) -> Path:
    """FOLDER/SPLIT under one of its usual names, or FOLDER itself."""
    names = _SPLITS.get(split, (split,))
    return next((folder / name for name in names if (folder / name).is_dir()), folder)


def _files(folder: Path) -> list[Path]:
    return sorted(
        p
        for p in folder.rglob("*")
        if p.suffix.lower() in IMAGE_SUFFIXES
        and not p.name.startswith(".")
        and (p.is_file() or not p.exists())  # a link to nowhere is a bad image, and named
    )
