"""Image folders: DIR/{train,val,test}/CLASS/*.jpg, DIR/CLASS{,/train,/val,/test}/*.jpg, or images without classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    A folder is divided where it has train/ with classes in it, or nothing but folders named after splits, in capitals
    or not; and where each of its classes is.
    """
    if not path.is_dir():
        raise DataError("is a file; give the folder that holds the class folders", where=path)
    unread: list[Path] = []
    found = _found(unpacked(path), unread)
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


def unpacked(path: Path) -> Path:
    """The folder in which the classes or splits are: archives often hold all in one folder, which holds no class."""
    while not split_folders(path) and not _pictures_in(path):
        inner = visible_folders(path)
        if len(inner) != 1 or not visible_folders(path / inner[0]):
            break
        splits = split_folders(path / inner[0])
        if splits and not any(visible_folders(folder) for folder in splits.values()):
            break  # one class, divided
        path = path / inner[0]
    return path


def split_folders(path: Path) -> dict[str, Path]:
    """The folders of the splits, by split; none where the folders are classes."""
    inner = visible_folders(path)
    folders = _named_after_splits(path, inner)
    train = folders.get("train")
    divided = train is not None and bool(visible_folders(train))
    return folders if divided or (folders and len(folders) == len(inner)) else {}


def _named_after_splits(path: Path, inner: Sequence[str]) -> dict[str, Path]:
    """The small names first, where both are there."""
    names = {name.lower(): name for name in sorted(inner)}
    found = {s: next((path / names[w] for w in words if w in names), None) for s, words in SPLIT_WORDS.items()}
    return {split: folder for split, folder in found.items() if folder is not None}


def _divided_classes(path: Path, inner: Sequence[str]) -> dict[str, dict[str, Path]]:
    """CLASS/SPLIT: the folders of each class by split, if each class has some and nothing else."""
    found = {}
    for name in inner:
        parts = visible_folders(path / name)
        found[name] = _named_after_splits(path / name, parts)
        if not parts or len(found[name]) != len(parts) or _pictures_in(path / name):
            return {}
    return found


def _pictures_in(folder: Path) -> bool:
    """Whether some lie there, and not further below."""
    return any(p.suffix.lower() in image_suffixes() and not p.name.startswith(".") for p in folder.iterdir())


def visible_folders(path: Path) -> list[str]:
    """Names of the class folders, sorted."""
    return sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))


def kinds() -> str:
    return ", ".join(s[1:] for s in image_suffixes())


def _found(root: Path, unread: list[Path]) -> dict[str, Mapping[str | None, Sequence[Path]]]:
    """Files by split and class."""
    folders = split_folders(root)
    by_class = {} if folders else _divided_classes(root, visible_folders(root))
    if not by_class:
        return {split: _files(folder, unread) for split, folder in (folders or {ALL: root}).items()}
    found: dict[str, dict[str | None, Sequence[Path]]] = {s: {} for s in SPLIT_WORDS}
    for name, parts in by_class.items():
        for split, folder in parts.items():
            found[split][name], other = picture_files(folder)
            unread += other
    return {split: files for split, files in found.items() if files}


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


LOOKS = "`DIR/CLASS/*.jpg`, `DIR/{train,val,test}/CLASS/*.jpg`, `DIR/CLASS/{train,val,test}/*.jpg`, or images alone"
FOLDER = Layout("folder", LOOKS, Path.is_dir, read)
