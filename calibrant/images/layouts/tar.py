"""Tar shards as WebDataset writes them: KEY.jpg, and KEY.cls with a class name or number where the label is known.

The archives are indexed once (headers only) and images are read by their place, so that shuffling, splits and exact
resume work as with files. Nothing is unpacked to disk.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from calibrant.errors import DataError
from calibrant.images.decode import image_suffixes, unread_suffixes
from calibrant.images.files import any_picture
from calibrant.images.image_set import ImageSet, Slice
from calibrant.images.labels import class_order, split_of_file
from calibrant.images.layout import Layout, Wishes
from calibrant.images.listing import ImageListing

_Entry = tuple[str, Slice, str]  # id, image, label or ""


def read(path: Path, wishes: Wishes) -> ImageListing:
    """DIR/*.tar, or one archive. Its split is what its name begins with, else it is of no split."""
    by_split: dict[str, list[_Entry]] = {}
    unread: list[str] = []
    for archive in archives(path):
        by_split.setdefault(split_of_file(archive.name, wishes.split), []).extend(_index(archive, unread))
    names = class_order(label for entries in by_split.values() for _, _, label in entries if label)
    if not any(by_split.values()):
        raise DataError("holds no images", where=path)
    number = {name: k for k, name in enumerate(names)}
    sets = {
        split: ImageSet(
            tuple(id_ for id_, _, _ in entries),
            np.asarray([number.get(label, -1) for _, _, label in entries], np.int64),
            files=tuple(image for _, image, _ in entries),
        )
        for split, entries in by_split.items()
    }
    return ImageListing(path, names, sets, numbered=True, unread=tuple(unread))


def archives(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() == ".tar" else []
    return [p for p in sorted(path.glob("*.tar")) if p.is_file()]


def _index(archive: Path, unread: list[str]) -> list[_Entry]:
    images: dict[str, Slice] = {}
    labels: dict[str, str] = {}
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                # The key ends at the first dot of the base name.
                folder, _, base = member.name.rpartition("/")
                stem, _, suffix = base.partition(".")
                key = f"{folder}/{stem}" if folder else stem
                if not member.isfile() or not stem:
                    continue
                if f".{suffix.lower()}" in image_suffixes():
                    images[key] = Slice(archive, member.offset_data, member.size)
                elif f".{suffix.lower()}" in unread_suffixes():
                    unread.append(f"{archive.name}/{member.name}")
                elif suffix == "cls":
                    content = tar.extractfile(member)
                    labels[key] = "" if content is None else content.read().decode().strip()
    except (tarfile.TarError, OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as an uncompressed tar archive ({error})", where=archive) from None
    return [(f"{archive.name}/{key}", image, labels.get(key, "")) for key, image in images.items()]


TAR = Layout(
    "tar",
    "`DIR/train-000.tar ...` with `KEY.jpg` beside `KEY.cls` (WebDataset)",
    lambda path: bool(archives(path)) and (path.is_file() or not any_picture(path)),
    read,
)
