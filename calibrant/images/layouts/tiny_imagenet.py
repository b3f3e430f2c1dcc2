"""Tiny-ImageNet: wnids.txt, train/WNID/images/*.JPEG, val/images and val/val_annotations.txt.

The authors' validation set is the test set here (their test images have no labels), as papers use it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.layout import Layout, Wishes, lines_of, listed_files
from calibrant.images.listing import ImageListing

_MARK = "wnids.txt"


def read(path: Path, wishes: Wishes) -> ImageListing:
    names = tuple(sorted(line.strip() for line in lines_of(path / _MARK) if line.strip()))
    files: list[str] = []
    labels: list[int] = []
    for k, name in enumerate(names):
        found = sorted(p.name for p in (path / "train" / name / "images").glob("*.JPEG"))
        if not found:
            raise DataError(f'class "{name}" has no images', where=path / "train" / name / "images")
        files += [f"{name}/images/{f}" for f in found]
        labels += [k] * len(found)
    annotations = path / "val" / "val_annotations.txt"
    rows = [line.split("\t") for line in lines_of(annotations)]
    strange = next((row for row in rows if len(row) < 2 or row[1] not in names), None)
    if strange is not None:
        raise DataError(f'line "{" ".join(strange)}" names no class of wnids.txt', where=annotations)
    y = np.asarray([names.index(row[1]) for row in rows], np.int64)
    sets = {
        "train": listed_files(path / "train", files, np.asarray(labels, np.int64), prefix="train/"),
        "test": listed_files(path / "val" / "images", [row[0] for row in rows], y, prefix="val/images/"),
    }
    return ImageListing(path, names, sets, named=True)


TINY_IMAGENET = Layout(
    "tiny-imagenet", "Tiny-ImageNet as its authors publish it", lambda path: (path / _MARK).is_file(), read
)
