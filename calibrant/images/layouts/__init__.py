"""The layouts of image data that Calibrant knows, one file each. A new one is a file here and a row of this table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.labels import SPLIT_WORDS
from calibrant.images.layout import Layout, Wishes
from calibrant.images.layouts import (
    aircraft,
    cifar,
    csv_list,
    cub,
    folder,
    npz,
    parquet,
    plugin,
    svhn,
    tar,
    tiny_imagenet,
    ufg,
)
from calibrant.images.listing import ImageListing, warn_of_unread

# In the order in which they are tried: what only one of them has comes first, a plain folder last.
LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (
    cub.CUB, tiny_imagenet.TINY_IMAGENET, cifar.CIFAR10, cifar.CIFAR100, aircraft.AIRCRAFT, svhn.SVHN, ufg.UFG,
    plugin.PLUGIN, npz.NPZ, csv_list.CSV, tar.TAR, parquet.PARQUET, folder.FOLDER,
)}  # fmt: skip


def list_images(path: str | Path, wishes: Wishes | None = None, *, layout: str = "auto") -> ImageListing:
    """What lies in a folder or file. A plain folder and shards are told from the benchmarks by their files."""
    path = Path(path)
    found = LAYOUTS[layout_of(path) if layout == "auto" else layout]
    listing = found.read(path, wishes or Wishes())
    warn_of_unread(path, listing.unread)
    return listing


def layout_of(path: Path) -> str:
    """The name of the layout, by the files that only it has."""
    if not path.exists() and not plugin.PLUGIN.recognises(path):
        raise DataError("no such file or folder", where=path)
    named = next((layout.name for layout in LAYOUTS.values() if layout.recognises(path)), None)
    if named is None:
        raise DataError(
            "is neither a folder of images, nor a .csv list, .npz or .mat file, nor a .tar or .parquet shard",
            where=path,
        )
    if named == "tar" and path.is_dir() and parquet.PARQUET.recognises(path):
        raise DataError("holds tar and Parquet shards", where=path, fix="give one kind a folder of its own")
    return named


def images_to_predict(
    path: str | Path, class_names: Sequence[str], *, split: str, former: Sequence[str] = ()
) -> ImageSet:
    """The images of one split, with labels in a model's numbering; all of them where the data have no splits.

    Where the split has a folder of its own, ids are relative to that. Folders of classes are read in the model's order.
    """
    path = Path(path)
    kind = layout_of(path)
    if path.is_dir() and kind in ("folder", "tar", "parquet"):
        words = next((words for words in SPLIT_WORDS.values() if split in words), (split,))
        path = next((path / word for word in words if (path / word).is_dir()), path)
        kind = layout_of(path)
    listing = list_images(path, Wishes(split=split), layout=kind)
    images = listing.known_to(class_names, listing.of_split(split), former=former)
    if kind != "folder":
        return images
    return images.rows(np.argsort(np.where(images.labels < 0, len(class_names), images.labels), kind="stable"))
