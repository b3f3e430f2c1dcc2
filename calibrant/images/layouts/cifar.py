"""CIFAR-10 and CIFAR-100 (fine labels), in the authors' binary version and in their Python version.

binary   data_batch_{1..5}.bin, test_batch.bin, batches.meta.txt; train.bin, test.bin, fine_label_names.txt
Python   data_batch_{1..5}, test_batch, batches.meta; train, test, meta: pickles, read as data and never executed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.layout import Layout, Wishes, lines_of
from calibrant.images.listing import ImageListing
from calibrant.images.plain_pickle import read_pickle

_PIXELS = 3 * 32 * 32  # 1024 red, 1024 green, 1024 blue
_Rows = tuple[NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True)
class _Version:
    """One of the two data sets in one of its two forms."""

    inner: str  # the folder in which the archive unpacks
    train: tuple[str, ...]
    test: str
    names: str
    pickled: str | None = None  # key of the labels
    label_bytes: int = 1  # of a binary row; the last of them counts

    def folder(self, path: Path) -> Path | None:
        if (path / self.inner).is_dir():
            return path / self.inner
        return path if (path / self.train[0]).is_file() and (path / self.names).is_file() else None


_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
_CIFAR10 = (
    _Version("cifar-10-batches-bin", tuple(f"{b}.bin" for b in _BATCHES), "test_batch.bin", "batches.meta.txt"),
    _Version("cifar-10-batches-py", tuple(_BATCHES), "test_batch", "batches.meta", pickled="labels"),
)
_CIFAR100 = (
    _Version("cifar-100-binary", ("train.bin",), "test.bin", "fine_label_names.txt", label_bytes=2),
    _Version("cifar-100-python", ("train",), "test", "meta", pickled="fine_labels"),
)
_NAMES = {"labels": "label_names", "fine_labels": "fine_label_names"}


def read(versions: Sequence[_Version], path: Path, wishes: Wishes) -> ImageListing:
    version, folder = next(((v, f) for v in versions if (f := v.folder(path)) is not None), (versions[0], path))
    if version.pickled is None:
        names = tuple(line.strip() for line in lines_of(folder / version.names) if line.strip())
    else:
        names = tuple(map(str, _entry(read_pickle(folder / version.names), _NAMES[version.pickled], folder)))
    parts = [_rows(folder / file, version) for file in version.train]
    both = {
        "train": (np.concatenate([p for p, _ in parts]), np.concatenate([y for _, y in parts])),
        "test": _rows(folder / version.test, version),
    }
    top = max(int(labels.max()) for _, labels in both.values())
    if top >= len(names):
        raise DataError(f"labels run to {top} but there are {len(names)} class names", where=folder)
    sets = {
        split: ImageSet(tuple(f"{split}/{i}" for i in range(len(labels))), labels, pixels=pixels)
        for split, (pixels, labels) in both.items()
    }
    return ImageListing(path, names, sets, named=True)


def _rows(file: Path, version: _Version) -> _Rows:
    pixels, labels = _binary(file, version.label_bytes) if version.pickled is None else _pickled(file, version.pickled)
    planes = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(planes), labels


def _binary(file: Path, label_bytes: int) -> _Rows:
    row = label_bytes + _PIXELS
    try:
        raw = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        raise DataError("no such file", where=file) from None
    if len(raw) == 0 or len(raw) % row:
        raise DataError(f"has {len(raw)} bytes, not a multiple of {row}", where=file)
    table = raw.reshape(-1, row)
    return table[:, label_bytes:], table[:, label_bytes - 1].astype(np.int64)


def _pickled(file: Path, key: str) -> _Rows:
    block = read_pickle(file)
    pixels, labels = _entry(block, "data", file), _entry(block, key, file)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (len(labels), _PIXELS):
        raise DataError(f"its data are not {len(labels)} rows of {_PIXELS} bytes", where=file)
    if not labels or not all(isinstance(k, int) and k >= 0 for k in labels):
        raise DataError("its labels are not numbers", where=file)
    return pixels, np.asarray(labels, np.int64)


def _entry(block: Any, key: str, where: Path) -> Any:
    found = block.get(key) if isinstance(block, dict) else None
    if found is None or not isinstance(found, list | np.ndarray):
        raise DataError(f'has no "{key}"', where=where, fix="is it a file of CIFAR?")
    return found


def _layout(name: str, looks: str, versions: Sequence[_Version]) -> Layout:
    return Layout(name, looks, lambda path: any(v.folder(path) is not None for v in versions), partial(read, versions))


CIFAR10 = _layout("cifar10", "CIFAR-10, binary or Python version, or the folder above", _CIFAR10)
CIFAR100 = _layout("cifar100", "CIFAR-100, binary or Python version, or the folder above", _CIFAR100)
