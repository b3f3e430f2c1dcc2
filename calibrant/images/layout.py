"""What a layout of image data is: one record each, in the table of `calibrant.images.layouts`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.listing import ImageListing


@dataclass(frozen=True)
class Wishes:
    """What can be asked of some layouts."""

    groups: str | None = None  # name of a column whose values are never divided between splits
    stage: str | None = None  # of SoyAgeing
    train_list: str = "train"  # or train_val
    split: str | None = None  # a word that names of shards may begin with besides train, val and test


@dataclass(frozen=True)
class Layout:
    name: str
    looks: str  # as the documentation says it
    recognises: Callable[[Path], bool]
    read: Callable[[Path, Wishes], ImageListing]
    wishes: tuple[str, ...] = ()  # those that it looks at


def lines_of(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise DataError("no such file", where=file) from None
    except UnicodeDecodeError:
        raise DataError("is not text", where=file) from None


def pairs_of(file: Path) -> list[tuple[str, str]]:
    """Lines of `key value`, the value with its spaces."""
    pairs = [line.strip().partition(" ") for line in lines_of(file) if line.strip()]
    broken = next((key for key, space, _ in pairs if not space), None)
    if broken is not None:
        raise DataError(f'line "{broken}" is not "key value"', where=file)
    return [(key, value.strip()) for key, _, value in pairs]


def listed_files(folder: Path, files: Sequence[str], labels: NDArray[np.int64], *, prefix: str = "") -> ImageSet:
    """Files that a list names, which must be there."""
    paths = tuple(folder / f for f in files)
    missing = next((p for p in paths if not p.is_file()), None)
    if missing is not None:
        raise DataError("is listed but does not exist", where=missing)
    return ImageSet(tuple(prefix + f for f in files), labels, files=paths)
