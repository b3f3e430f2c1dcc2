"""Tar shards as WebDataset writes them: KEY.jpg, and KEY.cls with a class name or number where the label is known."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from calibrant.errors import DataError
from calibrant.images.decode import IMAGE_SUFFIXES
from calibrant.serve.batch.picture_source import Content, Picture, label_of


@dataclass(frozen=True)
class _Place:
    archive: Path
    offset: int
    size: int

    def read(self) -> bytes:
        with open(self.archive, "rb") as stream:
            stream.seek(self.offset)
            return stream.read(self.size)


class TarShards:
    """Indexed once by headers; images are read by their place, and nothing is unpacked to disk."""

    def __init__(self, archives: Sequence[Path], class_names: Sequence[str]) -> None:
        self.pictures: list[Picture] = []
        self._places: list[_Place] = []
        for archive in archives:
            self._index(archive, class_names)
        if not self.pictures:
            raise DataError("holds no images", where=archives[0])

    def contents(self, start: int, stop: int) -> Iterator[tuple[Picture, Content]]:
        for picture, place in zip(self.pictures[start:stop], self._places[start:stop], strict=True):
            yield picture, partial(_Place.read, place)

    def _index(self, archive: Path, class_names: Sequence[str]) -> None:
        images: dict[str, _Place] = {}
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
                    if f".{suffix.lower()}" in IMAGE_SUFFIXES:
                        images[key] = _Place(archive, member.offset_data, member.size)
                    elif suffix == "cls":
                        content = tar.extractfile(member)
                        labels[key] = "" if content is None else content.read().decode().strip()
        except (tarfile.TarError, OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read as an uncompressed tar archive ({error})", where=archive) from None
        for key, place in images.items():
            id_ = f"{archive.name}/{key}"
            self.pictures.append(Picture(id_, archive, label_of(labels.get(key), class_names, where=archive, id_=key)))
            self._places.append(place)
