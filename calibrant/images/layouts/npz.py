"""NumPy archives: x_train, y_train, x_test, y_test as Keras publishes them, or encoded images behind one another.

Pixels   x_SPLIT (N, H, W, 3) or (N, H, W) uint8, y_SPLIT (N,)
Encoded  SPLIT_bytes (all files behind one another), SPLIT_offsets (N + 1), y_SPLIT; `jpeg_header`, where it is there,
         comes before every one of them
`classes` or `class_names` name the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import SPLIT_WORDS
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing


@dataclass(frozen=True)
class ArchivedImage:
    """An encoded image inside an array of an archive."""

    path: Path
    split: str
    row: int
    content: memoryview = field(repr=False, compare=False)
    header: bytes = field(repr=False, compare=False)

    def read(self) -> bytes:
        return self.header + bytes(self.content)


def read(path: Path, wishes: Wishes) -> ImageListing:
    arrays = _arrays(path)
    sets = {split: _set(arrays, split, path) for split in SPLIT_WORDS if _holds(arrays, split)}
    given = next((arrays[name] for name in ("classes", "class_names") if name in arrays), None)
    top = max(int(images.labels.max()) for images in sets.values())
    names = tuple(str(k) for k in range(top + 1)) if given is None else tuple(map(str, given))
    if top >= len(names):
        raise DataError(f"labels run to {top} but there are {len(names)} class names", where=path)
    return ImageListing(path, names, sets, named=given is not None, numbered=given is None)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read as a NumPy archive ({error})", where=path) from None


def _holds(names: Mapping[str, Any] | frozenset[str], split: str) -> bool:
    return f"y_{split}" in names and (f"x_{split}" in names or f"{split}_offsets" in names)


def _set(arrays: Mapping[str, NDArray[Any]], split: str, path: Path) -> ImageSet:
    labels = np.asarray(arrays[f"y_{split}"]).reshape(-1)
    if labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 0:
        raise DataError(f"y_{split} does not hold the numbers of classes", where=path)
    y = labels.astype(np.int64)
    ids = tuple(f"{split}/{i}" for i in range(len(y)))
    if f"x_{split}" in arrays:
        x = np.asarray(arrays[f"x_{split}"])
        grey = x.ndim == 3
        if x.dtype != np.uint8 or len(x) != len(y) or not (grey or (x.ndim == 4 and x.shape[3] in (1, 3))):
            raise DataError(f"x_{split} is not (N, H, W, 3) of bytes, one for each of y_{split}", where=path)
        pixels = x[..., None] if grey else x
        return ImageSet(ids, y, pixels=np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:3], 3))))
    offsets = np.asarray(arrays[f"{split}_offsets"], np.int64)
    data = arrays.get(f"{split}_bytes")
    if data is None or len(offsets) != len(y) + 1 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise DataError(f"{split}_offsets do not divide {split}_bytes into the images of y_{split}", where=path)
    view = memoryview(np.ascontiguousarray(data).tobytes())
    if int(offsets[-1]) > len(view):
        raise DataError(f"{split}_bytes ends before {split}_offsets do", where=path)
    header = np.asarray(arrays["jpeg_header"]).tobytes() if "jpeg_header" in arrays else b""
    edges = offsets.tolist()
    return ImageSet(
        ids, y, files=tuple(ArchivedImage(path, split, i, view[edges[i] : edges[i + 1]], header) for i in range(len(y)))
    )


def _recognises(path: Path) -> bool:
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    import zipfile

    try:
        names = frozenset(name.removesuffix(".npy") for name in zipfile.ZipFile(path).namelist())
    except (OSError, zipfile.BadZipFile):
        return False
    return any(_holds(names, split) for split in SPLIT_WORDS)


NPZ = Layout(
    "npz",
    "`FILE.npz` with `x_train`, `y_train`, `x_test`, `y_test` (Keras), or encoded images as `train_bytes`, "
    "`train_offsets`",
    _recognises,
    read,
)
