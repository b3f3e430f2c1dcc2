"""CUB-200-2011: images.txt, image_class_labels.txt, train_test_split.txt, classes.txt and images/."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.layout import Layout, Wishes, listed_files, pairs_of
from calibrant.images.listing import ImageListing

_INNER = "CUB_200_2011"  # in which the authors' archive unpacks
_MARK = "train_test_split.txt"


def read(path: Path, wishes: Wishes) -> ImageListing:
    path = path if (path / _MARK).is_file() else path / _INNER
    names = tuple(dict(pairs_of(path / "classes.txt")).values())
    files = dict(pairs_of(path / "images.txt"))
    labels = dict(pairs_of(path / "image_class_labels.txt"))
    in_train = dict(pairs_of(path / _MARK))
    if not files.keys() == labels.keys() == in_train.keys():
        raise DataError("images.txt, image_class_labels.txt and train_test_split.txt list other images", where=path)
    y = np.asarray([int(labels[i]) - 1 for i in files], np.int64)
    if y.min() < 0 or y.max() >= len(names):
        raise DataError(f"labels run to {y.max() + 1} but classes.txt has {len(names)} names", where=path)
    images = listed_files(path / "images", list(files.values()), y)
    training = np.asarray([in_train[i] == "1" for i in files])
    sets = {"train": images.rows(np.flatnonzero(training)), "test": images.rows(np.flatnonzero(~training))}
    return ImageListing(path, names, sets, named=True)


CUB = Layout(
    "cub",
    "CUB-200-2011 as its authors publish it, or the folder above",
    lambda path: (path / _MARK).is_file() or (path / _INNER / _MARK).is_file(),
    read,
)
