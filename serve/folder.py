"""Images to predict on: a folder with class folders, or with images only; the same reading as training's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant.errors import DataError, did_you_mean
from calibrant.preprocessing import IMAGE_SUFFIXES

_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}


@dataclass(frozen=True)
class ImageFile:
    id: str  # path below the folder, with forward slashes
    path: Path
    label: int  # -1 is unknown


def read_images(folder: Path, class_names: Sequence[str], *, split: str) -> list[ImageFile]:
    """In order of class and path: FOLDER/SPLIT/CLASS/*.jpg, FOLDER/CLASS/*.jpg, or images without labels."""
    if not folder.is_dir():
        raise DataError("is a file; give a folder of images" if folder.exists() else "no such folder", where=folder)
    names = _SPLITS.get(split, (split,))
    folder = next((folder / name for name in names if (folder / name).is_dir()), folder)
    inner = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    strange = [name for name in inner if name not in class_names]
    if strange:
        raise DataError(
            f'"{strange[0]}" is not a class of the model', where=folder, fix=did_you_mean(strange[0], class_names)
        )
    if not inner:
        found = [ImageFile(p.relative_to(folder).as_posix(), p, -1) for p in _files(folder)]
    else:
        found = [
            ImageFile(p.relative_to(folder).as_posix(), p, k)
            for k, name in enumerate(class_names)
            if name in inner
            for p in _files(folder / name)
        ]
    if not found:
        kinds = ", ".join(s[1:] for s in IMAGE_SUFFIXES)
        raise DataError(f"holds no images ({kinds})", where=folder)
    return found


def _files(folder: Path) -> list[Path]:
    return sorted(
        p
        for p in folder.rglob("*")
        if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith(".") and p.is_file()
    )
