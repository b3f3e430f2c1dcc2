"""Pictures to predict on, wherever they lie: a folder, tar shards or Parquet shards, always in one fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from calibrant.errors import DataError, did_you_mean
from calibrant.images.decode import IMAGE_SUFFIXES

Content = Callable[[], bytes | Path]  # called in the thread that decodes


@dataclass(frozen=True)
class Picture:
    id: str
    path: Path  # the file, or the shard that holds it
    label: int  # -1 is unknown


class PictureSource(Protocol):
    @property
    def pictures(self) -> Sequence[Picture]: ...

    def contents(self, start: int, stop: int) -> Iterator[tuple[Picture, Content]]:
        """The pictures from `start` up to `stop`, in order."""
        ...


def open_source(data: Path, class_names: Sequence[str], *, split: str) -> PictureSource:
    """FOLDER of images, *.tar or *.parquet in FOLDER (or in FOLDER/SPLIT), or one such file."""
    from calibrant.serve.batch.folder import Folder, split_folder
    from calibrant.serve.batch.parquet_shards import ParquetShards
    from calibrant.serve.batch.tar_shards import TarShards

    if data.is_file():
        if data.suffix.lower() == ".tar":
            return TarShards([data], class_names)
        if data.suffix.lower() == ".parquet":
            return ParquetShards([data], class_names, split)
        raise DataError("is a file; give a folder of images, or a .tar or .parquet shard", where=data)
    if not data.is_dir():
        raise DataError("no such folder", where=data)
    folder = split_folder(data, split)
    if _holds_images(folder, class_names):  # a Parquet file beside them is an earlier run's predictions
        return Folder(folder, class_names)
    tars, tables = ([p for p in sorted(folder.glob(f"*{suffix}")) if p.is_file()] for suffix in (".tar", ".parquet"))
    if tars and tables:
        raise DataError("holds tar and Parquet shards", where=folder, fix="give one kind a folder of its own")
    if tars:
        return TarShards(_of_split(tars, split, folder), class_names)
    if tables:
        return ParquetShards(_of_split(tables, split, folder), class_names, split)
    return Folder(folder, class_names)


def _holds_images(folder: Path, class_names: Sequence[str]) -> bool:
    return any(p.name in class_names if p.is_dir() else p.suffix.lower() in IMAGE_SUFFIXES for p in folder.iterdir())


def _of_split(shards: Sequence[Path], split: str, where: Path) -> list[Path]:
    """Shards named after the split, where some are named after one; else all."""
    names = {"train", "val", "validation", "test", split}
    named = {p: next((n for n in sorted(names, key=len, reverse=True) if p.name.startswith(n)), None) for p in shards}
    if not any(named.values()):
        return list(shards)
    wanted = {split, "validation" if split == "val" else split}
    found = [p for p in shards if named[p] in wanted]
    if not found:
        known = sorted({n for n in named.values() if n})
        raise DataError(f"no shard is named {split}*", where=where, fix=f"choose with --split: {', '.join(known)}")
    return found


def label_of(value: object, class_names: Sequence[str], *, where: Path, id_: str) -> int:
    """The class number of a label as shards have it: a class name, or a number; -1 for none.

    A number that is itself the name of a class is that class.
    """
    if value is None or value == "" or value == -1:
        return -1
    text = str(value).strip()
    if text in class_names:
        return class_names.index(text)
    if text.isdigit() and int(text) < len(class_names):
        return int(text)
    raise DataError(
        f'the label of {id_}, "{text[:60]}", is neither a class of the model nor a number below {len(class_names)}',
        where=where, fix=did_you_mean(text, class_names),
    )  # fmt: skip
