"""Tar shards as WebDataset writes them: KEY.jpg beside KEY.cls (a class number or name) in each archive.

The archives are indexed once (headers only) and images are read by their place, so that shuffling, splits and exact
resume work as with files. Nothing is unpacked to disk.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant.errors import DataError, did_you_mean
from calibrant.preprocessing import IMAGE_SUFFIXES
from calibrant.train.data.image_set import ImageSet, Slice, Splits
from calibrant.train.data.split import divide

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class _Entry:
    key: str
    image: Slice
    label: str


def read_shards(path: str | Path, *, val_fraction: float = 0.2, test_fraction: float = 0.2, seed: int = 42) -> Splits:
    """DIR/*.tar; archives whose name starts with train, val or test are that split, else all are divided by class."""
    path = Path(path)
    archives = sorted(path.glob("*.tar"))
    if not archives:
        raise DataError("holds no .tar files", where=path)
    by_split: dict[str, list[_Entry]] = {}
    for archive in archives:
        split = next((s for s in _SPLITS if archive.name.startswith(s)), "all")
        by_split.setdefault(split, []).extend(_index(archive))
    if "all" in by_split and len(by_split) > 1:
        raise DataError(
            "some archives are named after a split (train, val, test) and some are not", where=path,
            fix="name all of them, or none",
        )  # fmt: skip
    names = _names({e.label for entries in by_split.values() for e in entries})
    if "all" in by_split:
        test, val, rest = divide(
            _set(by_split["all"], names, path), (test_fraction, val_fraction), class_names=names, seed=seed
        )
        return Splits(names, rest, val, test if len(test) else None)
    if "train" not in by_split:
        raise DataError("no archive is named train*", where=path, fix=did_you_mean("train", by_split))
    sets = {split: _set(entries, names, path) for split, entries in by_split.items()}
    if "val" in sets:
        return Splits(names, sets["train"], sets["val"], sets.get("test"))
    val, rest = divide(sets["train"], (val_fraction,), class_names=names, seed=seed)
    return Splits(names, rest, val, sets.get("test"))


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


def _names(labels: set[str]) -> tuple[str, ...]:
    return tuple(sorted(labels, key=int) if all(v.isdigit() for v in labels) else sorted(labels))


def _set(entries: list[_Entry], names: tuple[str, ...], where: Path) -> ImageSet:
    if len(names) < 2:
        raise DataError("has fewer than two classes", where=where)
    index = {name: k for k, name in enumerate(names)}
    labels = np.asarray([index[e.label] for e in entries], np.int64)
    return ImageSet(tuple(e.key for e in entries), labels, files=tuple(e.image for e in entries))
