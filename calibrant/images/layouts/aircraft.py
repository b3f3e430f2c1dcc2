"""FGVC-Aircraft, variants: data/images/ID.jpg, data/images_variant_{train,val,test}.txt, data/variants.txt."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.layout import Layout, Wishes, lines_of, listed_files, pairs_of
from calibrant.images.listing import ImageListing

_MARK = "images_variant_train.txt"


def read(path: Path, wishes: Wishes) -> ImageListing:
    data = path / "data" if (path / "data" / _MARK).is_file() else path
    names = tuple(line.strip() for line in lines_of(data / "variants.txt") if line.strip())
    sets = {}
    for split in ("train", "val", "test"):
        file = data / f"images_variant_{split}.txt"
        pairs = pairs_of(file)
        unknown = next((name for _, name in pairs if name not in names), None)
        if unknown is not None:
            raise DataError(f'variant "{unknown}" is not in variants.txt', where=file)
        labels = np.asarray([names.index(name) for _, name in pairs], np.int64)
        sets[split] = listed_files(data / "images", [f"{i}.jpg" for i, _ in pairs], labels)
    return ImageListing(path, names, sets, named=True)


AIRCRAFT = Layout(
    "aircraft",
    "FGVC-Aircraft as its authors publish it",
    lambda path: (path / _MARK).is_file() or (path / "data" / _MARK).is_file(),
    read,
)
