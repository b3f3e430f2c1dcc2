"""Image folders: DIR/{train,val,test}/CLASS/*.jpg, or DIR/CLASS/*.jpg with splits drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.images.decode import IMAGE_SUFFIXES
from calibrant.train.data.image_set import ImageSet, Splits
from calibrant.train.data.split import divide

_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}


def read_folder(path: str | Path, *, val_fraction: float = 0.2, test_fraction: float = 0.2, seed: int = 42) -> Splits:
    """The splits of an image folder. Classes are the names of the folders, sorted.

    Without train/ in it the folder is divided by class, 20 % for testing and 20 % for validation unless told otherwise.
    With train/ and no val/, the validation set is taken from train/.
    """
    path = Path(path)
    require_folder(path)
    train = split_folder(path, "train")
    if train is None:
        classes = class_folders(path)
        whole = read_classes(path, classes)
        try:
            test, val, rest = divide(whole, (test_fraction, val_fraction), class_names=classes, seed=seed)
        except DataError as error:
            raise DataError(error.what, where=path, fix=error.fix) from None
        return Splits(tuple(classes), rest, val, test if len(test) else None)
    classes = class_folders(train)
    whole = read_classes(train, classes, root=path)
    val_path, test_path = split_folder(path, "val"), split_folder(path, "test")
    test_set = None if test_path is None else read_known_classes(test_path, classes, root=path)
    if val_path is not None:
        return Splits(tuple(classes), whole, read_known_classes(val_path, classes, root=path), test_set)
    try:
        val, rest = divide(whole, (val_fraction,), class_names=classes, seed=seed)
    except DataError as error:
        raise DataError(error.what, where=train, fix=error.fix) from None
    return Splits(tuple(classes), rest, val, test_set)


def split_folder(path: Path, split: str) -> Path | None:
    """The folder of a split under one of its usual names."""
    return next((path / name for name in _SPLITS[split] if (path / name).is_dir()), None)


def require_folder(path: Path) -> None:
    if not path.exists():
        raise DataError("no such folder", where=path)
    if not path.is_dir():
        raise DataError("is a file; give the folder that holds the class folders", where=path)


def class_folders(path: Path) -> list[str]:
    """Names of the class folders, sorted; at least two."""
    classes = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))
    if not classes:
        loose = any(p.suffix.lower() in IMAGE_SUFFIXES for p in path.iterdir())
        raise DataError(
            "has images but no class folders" if loose else "has no class folders",
            where=path, fix="put the images of each class into a folder of its own",
        )  # fmt: skip
    if len(classes) == 1:
        raise DataError(f'has one class ("{classes[0]}"); a classifier needs two', where=path)
    return classes


def read_classes(path: Path, classes: Sequence[str], *, root: Path | None = None) -> ImageSet:
    """All images of the class folders, in order of class and name; a class without images is refused."""
    files: list[Path] = []
    labels: list[int] = []
    for k, name in enumerate(classes):
        found = image_files(path / name)
        if not found:
            kinds = ", ".join(s[1:] for s in IMAGE_SUFFIXES)
            raise DataError(f'class "{name}" has no images ({kinds})', where=path / name)
        files += found
        labels += [k] * len(found)
    return from_files(files, labels, root or path)


def read_known_classes(path: Path, classes: Sequence[str], *, root: Path | None = None) -> ImageSet:
    """Images of a validation or test folder: it may lack classes of the training set and may not bring new ones."""
    present = class_folders(path)
    for name in present:
        if name not in classes:
            raise DataError(f'class "{name}" is not in the training set', where=path, fix=did_you_mean(name, classes))
    files: list[Path] = []
    labels: list[int] = []
    for k, name in enumerate(classes):
        found = image_files(path / name) if name in present else []
        files += found
        labels += [k] * len(found)
    if not files:
        raise DataError("holds no images", where=path)
    return from_files(files, labels, root or path)


def image_files(path: Path) -> list[Path]:
    """Image files under a folder, at any depth, in order of their path."""
    return sorted(
        p for p in path.rglob("*") if p.suffix.lower() in IMAGE_SUFFIXES and not p.name.startswith(".") and p.is_file()
    )


def from_files(files: Sequence[Path], labels: Sequence[int], root: Path) -> ImageSet:
    ids = tuple(f.relative_to(root).as_posix() for f in files)
    return ImageSet(ids, np.asarray(labels, np.int64), files=tuple(files))
