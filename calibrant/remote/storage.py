"""Object storage, as fsspec reaches it: s3://bucket/folder, gs://, memory:// and what else has a library.

The rest of the product reads and writes files of this machine. `local_copy` brings an address here: a file, or all that
lies below it, into the user's cache ($XDG_CACHE_HOME/calibrant/copies), where a second call copies only what has
changed in the storage since. Names are kept; a file takes its name when it is whole. `outgoing` is a place for a result
that is sent to its address when it is done; what was there stays until then.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import click

from calibrant import atomic
from calibrant.errors import ConfigError, DataError

_AT_ONCE = 64  # files that are asked for together
_copied: dict[Path, str] = {}
_MARKS = "marks.json"  # beside the copy: what each file was in the storage
_MARK_KEYS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")


def is_address(text: object) -> bool:
    """Of object storage, as fsspec writes it: s3://, gs://, memory://, ..."""
    scheme, found, _ = str(text).partition("://")
    return bool(found) and scheme.isalnum()


def why(error: Exception) -> str:
    """One line of what a storage's library said."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


class Storage:
    """What lies below an address. Whatever the library raises comes through, but for `open`."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.filesystem, self.root = _open(self.address)

    def listed(self) -> Iterator[tuple[str, str]]:
        """Paths below the address, and what changes when their content does. Of a file alone: its own name."""
        self.filesystem.invalidate_cache()
        for path, info in self.filesystem.find(self.root, detail=True).items():
            relative = PurePosixPath(path).relative_to(self.root)
            name = str(relative) if relative.parts else PurePosixPath(path).name
            if ".." not in relative.parts and info.get("type") != "directory":
                yield name, f"{info.get('size')} {' '.join(str(info.get(key)) for key in _MARK_KEYS)}"

    @property
    def is_file(self) -> bool:
        return bool(self.filesystem.isfile(self.root))

    def get(self, names: Iterable[str], folder: Path) -> None:
        """Copies into `folder`; each file comes under another name and is renamed when it is whole."""
        alone, waiting = self.is_file, list(names)
        for start in range(0, len(waiting), _AT_ONCE):
            some = waiting[start : start + _AT_ONCE]
            here = [folder / name for name in some]
            parts = [path.with_name(f".{path.name}.{os.getpid()}.part") for path in here]
            for path in here:
                path.parent.mkdir(parents=True, exist_ok=True)
            self.filesystem.get([self.root if alone else f"{self.root}/{n}" for n in some], [str(p) for p in parts])
            for part, path in zip(parts, here, strict=True):
                part.replace(path)

    def put(self, local: Path, name: str = "") -> None:
        """Under the address itself, or below it. What is read there is the old file or the whole new one."""
        self.filesystem.put_file(str(local), f"{self.root}/{name}" if name else self.root)

    def exists(self) -> bool:
        self.filesystem.invalidate_cache()
        return bool(self.filesystem.exists(self.root))


def local_copy(address: str) -> Path:
    """The file or folder of this machine that holds what lies there now."""
    storage = Storage(address)
    place = _cache() / hashlib.sha256(storage.address.encode()).hexdigest()[:16]
    name = PurePosixPath(storage.root).name or "all"
    try:
        with _alone_at(place):
            found = dict(storage.listed())
            if not found:
                raise FileNotFoundError("nothing lies there")
            target = place if storage.is_file else place / name
            _bring(storage, found, target, place / _MARKS)
    except Exception as error:  # of whatever library the storage has
        raise DataError(f"cannot be read ({why(error)})", where=storage.address) from None
    _copied[place / name] = storage.address
    return place / name


def reached(address: str) -> bool:
    """Whether something lies there; a DataError where the storage does not answer."""
    try:
        return Storage(address).exists()
    except OSError as error:
        raise DataError(f"cannot be reached ({why(error)})", where=address) from None


def address_of(path: Path) -> str | None:
    """Where a file below a copy that this process made lies in the storage; None of any other file."""
    for place, address in _copied.items():
        if path == place:
            return address
        if place in path.parents:
            return f"{address}/{path.relative_to(place).as_posix()}"
    return None


def here(given: str | Path) -> Path:
    """A path as it is, an address as the path of its copy."""
    return local_copy(str(given)) if is_address(given) else Path(given)


def _bring(storage: Storage, there: Mapping[str, str], target: Path, marks: Path) -> None:
    try:
        known: dict[str, str] = json.loads(marks.read_text())
    except (OSError, ValueError):
        known = {}
    atomic.write_json(marks, {name: mark for name, mark in known.items() if there.get(name) == mark})
    target.mkdir(parents=True, exist_ok=True)
    storage.get([n for n, mark in there.items() if known.get(n) != mark or not (target / n).is_file()], target)
    for name in known.keys() - there.keys():  # what is not from the storage, such as statistics, stays
        (target / name).unlink(missing_ok=True)
    atomic.write_json(marks, dict(there))


@contextlib.contextmanager
def outgoing(out: str | Path) -> Iterator[Path]:
    """Where to write what is meant for `out`; of an address a path in the cache, which is sent there at the end.

    What else was written beside it under its name and more goes along, but for folders: an interrupted run finds its
    finished parts there again.
    """
    if not is_address(out):
        yield Path(out)
        return
    storage = Storage(str(out))
    name = PurePosixPath(storage.root).name
    place = _cache() / f"out-{hashlib.sha256(storage.address.encode()).hexdigest()[:16]}"
    place.mkdir(parents=True, exist_ok=True)
    yield place / name
    above = Storage(storage.address.rpartition("/")[0])
    try:
        written = sorted((p for p in place.glob(f"{name}*") if p.is_file()), key=lambda p: p.name == name)
        for path in written:  # the result last: who sees it sees all
            above.put(path, path.name)
            path.unlink()
    except Exception as error:
        raise DataError(
            f"cannot be written ({why(error)}); what was to go there is kept", where=out, fix=f"copy it from {place}"
        ) from None


class FileOrAddress(click.Path):
    """A path; of an address of object storage the path of its copy, which is made when the command line is read."""

    name = "path"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return here(value) if isinstance(value, str) and is_address(value) else super().convert(value, param, ctx)


class PathOrAddress(click.Path):
    """A path, or an address as text."""

    name = "path"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, str) and is_address(value) else super().convert(value, param, ctx)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "calibrant" / "copies"


@contextlib.contextmanager
def _alone_at(place: Path) -> Iterator[None]:
    """One process at a time; where files cannot be locked, several copy the same."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as stream:
        with contextlib.suppress(ImportError, OSError):  # Windows, some network file systems
            import fcntl

            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _open(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ConfigError("needs fsspec", where=address, fix="pip install 'calibrant[storage]'") from None
    try:
        filesystem, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except TypeError:  # that has no cache of listings
        filesystem, root = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"cannot be opened ({error})", where=address, fix="pip install 'calibrant[storage]'"
        ) from None
    return filesystem, str(root).rstrip("/")
