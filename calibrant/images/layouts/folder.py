"""Image folders: DIR/{train,val,test}/CLASS/*.jpg, DIR/CLASS/*.jpg, or images without classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.decode import image_suffixes
from calibrant.images.files import id_of, picture_files
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import ALL, SPLIT_WORDS
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing


def read(path: Path, wishes: Wishes | None = None) -> ImageListing:
    """Classes are the names of the folders, sorted; those that hold no image are among them.

    A folder is divided where it has train/ with classes in it, or nothing but folders named after splits.
    """
    if not path.is_dir():
        raise DataError("is a file; give the folder that holds the class folders", where=path)
    folders = split_folders(path) or {ALL: path}
    unread: list[Path] = []
    found = {split: _files(folder, unread) for split, folder in folders.items()}
    names = tuple(sorted({name for by_class in found.values() for name in by_class if name is not None}))
    number: dict[str | None, int] = {name: k for k, name in enumerate(names)}
    sets = {}
    for split, by_class in found.items():
        files = [(file, number.get(name, -1)) for name, some in by_class.items() for file in some]
        if files or split == ALL:
            labels = np.asarray([k for _, k in files], np.int64)
            sets[split] = ImageSet(tuple(id_of(f, path) for f, _ in files), labels, files=tuple(f for f, _ in files))
    if not any(len(images) for images in sets.values()):
        raise DataError(f"holds no images ({kinds()})", where=path, fix=_left(path, unread))
    return ImageListing(
        path, names, sets, bare="has images but no class folders", unread=tuple(id_of(f, path) for f in unread)
    )


def split_folders(path: Path) -> dict[str, Path]:
    """The folders of the splits, by split; none where the folders are classes."""
    inner = visible_folders(path)
    found = {s: next((path / w for w in words if w in inner), None) for s, words in SPLIT_WORDS.items()}
    folders = {split: folder for split, folder in found.items() if folder is not None}
    train = folders.get("train")
    divided = train is not None and bool(visible_folders(train))
    return folders if divided or (folders and len(folders) == len(inner)) else {}


def visible_folders(path: Path) -> list[str]:
    """Names of the class folders, sorted."""
    return sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))


def kinds() -> str:
    return ", ".join(s[1:] for s in image_suffixes())


def _files(folder: Path, unread: list[Path]) -> dict[str | None, Sequence[Path]]:
    """Images by class, in order of class and path; without class folders all of them under None."""
    classes = visible_folders(folder)
    found: dict[str | None, Sequence[Path]] = {}
    for name in classes or (None,):
        found[name], other = picture_files(folder if name is None else folder / name)
        unread += other
    return found


def _left(path: Path, unread: Sequence[Path]) -> str | None:
    return f"convert {unread[0].name} and the like to one of these" if unread else None


FOLDER = Layout("folder", "`DIR/CLASS/*.jpg`, `DIR/{train,val,test}/CLASS/*.jpg`, or images alone", Path.is_dir, read)
