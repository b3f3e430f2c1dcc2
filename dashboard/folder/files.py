"""Files below the folder of the dashboard: which there are, and the state that each is in.

Nothing outside of that folder is opened: symbolic links that lead out of it are left alone.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from calibrant.artifacts.predictions.file import shards_of
from calibrant.errors import DataError

MAX_DEPTH = 6
MAX_FILES = 50_000
TABLES = (".npz", ".npy", ".csv", ".tsv", ".jsonl")  # that may hold predictions, besides Parquet
_SUFFIXES = (".parquet", ".json", ".onnx", *TABLES)
_TEMPORARY = re.compile(r"^\.|\.tmp\.")


@dataclass(frozen=True)
class Stamp:
    """A file as it is now; another size or time means another content."""

    path: Path
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Trouble:
    """Something below the folder that cannot be used: which, why, and what to do."""

    where: str
    what: str
    fix: str = ""


def stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(
            f"cannot be read any more ({error.strerror})", where=path.name, fix="choose another, or put it back"
        ) from None
    return Stamp(path, found.st_size, found.st_mtime_ns)


def stamps(path: Path) -> tuple[Stamp, ...]:
    """Of a file, or of each shard of a folder."""
    return tuple(stamp(p) for p in shards_of(path))


def inside(root: Path, path: Path) -> bool:
    """Whether the file, with every link followed, lies below the folder."""
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve(strict=True))
    except OSError:
        return False


def walk(root: Path, troubles: list[Trouble]) -> Iterator[Path]:
    """Files below the folder that are really there, at most MAX_DEPTH deep, in order of path."""
    seen = 0
    waiting = [(root, 0)]
    while waiting:
        here, depth = waiting.pop()
        try:
            folders, names = _listing(here)
        except OSError as error:
            troubles.append(Trouble(name_below(root, here), f"cannot be listed ({error.strerror})"))
            continue
        for name in names:
            path = here / name
            seen += 1
            if seen > MAX_FILES:
                troubles.append(Trouble(root.name, f"holds more than {MAX_FILES:,} files; the rest is not shown"))
                return
            if path.is_symlink() and not inside(root, path):
                troubles.append(Trouble(name_below(root, path), "is a link out of the folder and is not followed"))
                continue
            yield path
        if depth < MAX_DEPTH:
            waiting += [(here / name, depth + 1) for name in reversed(folders)]


def _listing(folder: Path) -> tuple[list[str], list[str]]:
    """Sub-folders and the files of interest. A folder that did not change is not listed again: it may hold a data set.

    A change within the clock's last ticks could go unseen, so what is that fresh is not kept.
    """
    changed = folder.stat().st_mtime_ns
    if time.time_ns() - changed < 2_000_000_000:
        return _list(folder)
    return _listing_at(folder, changed)


@lru_cache(8192)
def _listing_at(folder: Path, changed: int) -> tuple[list[str], list[str]]:
    return _list(folder)


def _list(folder: Path) -> tuple[list[str], list[str]]:
    folders, files = [], []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.search(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "tb":
                    folders.append(entry.name)
            elif entry.name.endswith(_SUFFIXES):
                files.append(entry.name)
    return sorted(folders), sorted(files)


def name_below(root: Path, path: Path) -> str:
    relative = path.relative_to(root).as_posix()
    return root.name or "/" if relative == "." else relative
