"""SVHN, cropped digits: train_32x32.mat, test_32x32.mat, or one such file. Read as data by scipy.

X (32, 32, 3, N) uint8, y (N, 1) with 10 for the digit 0. SVHN in Parquet is read as any Parquet file is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing

_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
_NAMES = tuple("0123456789")


def read(path: Path, wishes: Wishes) -> ImageListing:
    if path.is_file():
        split = next((s for s, name in _FILES.items() if path.name == name), "test")
        return ImageListing(path, _NAMES, {split: _images(path, split)}, named=True)
    sets = {split: _images(path / name, split) for split, name in _FILES.items() if (path / name).is_file()}
    return ImageListing(path, _NAMES, sets, named=True)


def _images(file: Path, split: str) -> ImageSet:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        block = loadmat(file, variable_names=["X", "y"])
        x, y = np.asarray(block["X"]), np.asarray(block["y"]).reshape(-1)
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError, MatReadError) as error:
        raise DataError(f"cannot be read as a .mat file of SVHN ({error})", where=file) from None
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2] != 3 or x.shape[3] != len(y):
        raise DataError(f"X is {x.dtype} {x.shape} for {len(y)} labels, not (32, 32, 3, N) bytes", where=file)
    if len(y) == 0 or y.min() < 0 or y.max() > 10:
        raise DataError("its labels are not the digits 1 to 10", where=file)
    labels = y.astype(np.int64) % 10
    pixels = np.ascontiguousarray(x.transpose(3, 0, 1, 2))
    return ImageSet(tuple(f"{split}/{i}" for i in range(len(labels))), labels, pixels=pixels)


SVHN = Layout(
    "svhn",
    "SVHN, cropped digits, as its authors publish it: `train_32x32.mat`, `test_32x32.mat`, or one of them",
    lambda path: path.suffix.lower() == ".mat" or any((path / name).is_file() for name in _FILES.values()),
    read,
)
