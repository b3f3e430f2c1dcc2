"""Tar shards as WebDataset writes them: KEY.jpg beside KEY.cls (a class number or name) in each archive.

The archives are indexed once (headers only) and images are read by their place, so that shuffling, splits and exact
resume work as with files. Nothing is unpacked to disk.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.decode import IMAGE_SUFFIXES
from calibrant.train.data.image_set import ImageSet, Slice, Splits
from calibrant.train.data.labels import class_order
from calibrant.train.data.split import splits_of

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class _Entry:
    key: str
    image: Slice
    label: str


def read_tar(path: str | Path, *, val_fraction: float = 0.2, test_fraction: float = 0.2, seed: int = 42) -> Splits:
    """DIR/*.tar; archives whose name starts with train, val or test are that split, else all are divided by class."""
    path = Path(path)
    archives = sorted(path.glob("*.tar"))
    if not archives:
        raise DataError("holds no .tar files", where=path)
    by_split: dict[str, list[_Entry]] = {}
    for archive in archives:
        split = next((s for s in _SPLITS if archive.name.startswith(s)), "all")
        by_split.setdefault(split, []).extend(_index(archive))
    names = class_order(e.label for entries in by_split.values() for e in entries)
    sets = {split: _set(entries, names, path) for split, entries in by_split.items()}
    return splits_of(sets, names, where=path, val_fraction=val_fraction, test_fraction=test_fraction, seed=seed)


def _index(archive: Path) -> list[_Entry]:
    images: dict[str, Slice] = {}
    labels: dict[str, str] = {}
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                if not member.isfile():
                    continue
                # WebDataset: the key ends at the first dot of the base name
                folder, _, base = member.name.rpartition("/")
                stem, _, suffix = base.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                if f".{suffix.lower()}" in IMAGE_SUFFIXES:
                    images[key] = Slice(archive, member.offset_data, member.size)
                elif suffix == "cls":
                    content = tar.extractfile(member)
                    labels[key] = content.read().decode().strip() if content is not None else ""
    except (tarfile.TarError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as an uncompressed tar archive ({error})", where=archive) from None
    bare = next((key for key in images if not labels.get(key)), None)
    if bare is not None:
        raise DataError(f"{bare} has no {bare}.cls beside it", where=archive)
    return [_Entry(f"{archive.name}/{key}", image, labels[key]) for key, image in images.items()]


def _set(entries: list[_Entry], names: tuple[str, ...], where: Path) -> ImageSet:
    if len(names) < 2:
        raise DataError("has fewer than two classes", where=where)
    index = {name: k for k, name in enumerate(names)}
    labels = np.asarray([index[e.label] for e in entries], np.int64)
    return ImageSet(tuple(e.key for e in entries), labels, files=tuple(e.image for e in entries))
