"""Where in the feedback log each prediction lies, so that a label that comes days later finds its row."""

from __future__ import annotations

import errno
import hashlib
import logging
import mmap
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_records import is_there

log = logging.getLogger(__name__)

_OPEN_ROWS = 1 << 15  # of the part that is in memory
_PARTS = 8  # that are made one: joining takes memory that is not all given back
_BLOCK_BITS = 20  # of an entry: the number of the row's block, of which a part has no more than rows
_LOW = np.uint64((1 << _BLOCK_BITS) - 1)
_UNSORTED = 1 << 13
_REACH = 1 << 10  # entries to both sides of where an id should lie


class Index:
    """8 bytes a row and 12 a block, in parts of a fixed size, for as long as the log has them. The last part is in
    memory, the others in files without a name in the log's own folder, which end with the process. For one thread at a
    time."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._segments: dict[Path, Path] = {}  # one object for each, however often a reader lists the folder

    def add(self, path: Path, offset: int, ids: Sequence[str]) -> None:
        if not ids:
            return
        if not self._parts or self._parts[-1].rows + len(ids) > _OPEN_ROWS:
            self._put_away()
            self._parts.append(_Part(max(len(ids), _OPEN_ROWS), _OPEN_ROWS))
        path = self._segments.setdefault(path, path)
        self._parts[-1].add(path, offset, _keys(ids))

    def places(self, id_: str) -> Iterator[tuple[Path, int]]:
        """Lines that may hold the id, oldest first; the caller looks for the id itself in them."""
        key = _keys([id_])[0]
        for part in self._parts:
            yield from part.places(key)

    def _put_away(self) -> None:
        if self._parts:
            self._parts[-1].to_disk()
        there = {path for path in {path for part in self._parts for path in part.paths} if is_there(path)}
        self._parts = [part for part in self._parts if not there.isdisjoint(part.paths)]
        self._segments = {path: path for part in self._parts for path in part.paths}
        small = [part for part in self._parts if not part.joined]
        if len(small) >= _PARTS:
            whole = _Part.of(small)
            whole.to_disk()
            self._parts = [*(part for part in self._parts if part.joined), whole]


class _Part:
    """An entry is the high bits of the id's hash and the number of its block."""

    def __init__(self, most_rows: int, most_blocks: int) -> None:
        self.rows = self.blocks = self._sorted = 0
        self.paths: list[Path] = []  # each once
        self.joined = False
        self._path, self._offset = _room(most_blocks, np.int32), _room(most_blocks, np.int64)  # of each block
        self._entries = _room(most_rows, np.uint64)
        self._file: IO[bytes] | None = None  # then it holds these three, in the order entries, paths, offsets

    @classmethod
    def of(cls, parts: Sequence[_Part]) -> _Part:
        """One of several, the oldest first."""
        whole = cls(sum(part.rows for part in parts), sum(part.blocks for part in parts))
        whole.joined = True
        for part in parts:
            rows, blocks = slice(whole.rows, whole.rows + part.rows), slice(whole.blocks, whole.blocks + part.blocks)
            part._copy(whole._entries[rows], whole._path[blocks], whole._offset[blocks])
            whole._entries[rows] += np.uint64(whole.blocks)
            whole._path[blocks] = np.array([whole._number(path) for path in part.paths], np.int32)[whole._path[blocks]]
            whole.rows, whole.blocks = rows.stop, blocks.stop
        return whole

    def add(self, path: Path, offset: int, keys: NDArray[np.uint64]) -> None:
        end = self.rows + len(keys)
        np.bitwise_or(keys, np.uint64(self.blocks), out=self._entries[self.rows : end])
        self._path[self.blocks], self._offset[self.blocks] = self._number(path), offset
        self.rows, self.blocks = end, self.blocks + 1
        if self.rows - self._sorted >= _UNSORTED:
            self._sort()

    def _number(self, path: Path) -> int:
        """Its place among the few segments of the part. Several workers write at a time, so blocks of one do not
        follow one another."""
        if path not in self.paths:
            self.paths.append(path)
        return self.paths.index(path)

    def _sort(self) -> None:
        self._entries[: self.rows].sort()
        self._sorted = self.rows

    def to_disk(self) -> None:
        """Where the disk takes it; else it stays in memory."""
        self._sort()
        try:
            file = tempfile.TemporaryFile(dir=self.paths[-1].parent, buffering=0)  # noqa: SIM115, lives as long as this
            weakref.finalize(self, file.close)
            for values in self._values():
                left = values.view(np.uint8).data
                while left:
                    left = left[file.write(left) :]
        except OSError as error:
            log.warning("the index of the log stays in memory: %s", error)
            return
        self._file = file
        self._path, self._offset, self._entries = _room(0, np.int32), _room(0, np.int64), _room(0, np.uint64)

    def _values(self) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]]:
        return self._entries[: self.rows], self._path[: self.blocks], self._offset[: self.blocks]

    def _copy(self, *to: NDArray[Any]) -> None:
        """Entries, paths and offsets to arrays of their sizes."""
        if self._file is None:
            for array, values in zip(to, self._values(), strict=True):
                array[:] = values
            return
        self._file.seek(0)
        for array in to:
            _read(self._file, array)

    def places(self, key: np.uint64) -> Iterator[tuple[Path, int]]:
        if self._file is not None:
            yield from self._places_on_disk(self._file, key)
            return
        old, new = self._entries[: self._sorted], self._entries[self._sorted : self.rows]
        for entry in (*_of(key, old), *new[(new & ~_LOW) == key].tolist()):
            block = entry & int(_LOW)
            yield self.paths[self._path[block]], int(self._offset[block])

    def _places_on_disk(self, file: IO[bytes], key: np.uint64) -> Iterator[tuple[Path, int]]:
        """Hashes lie evenly, so where one should be is known to within some dozens of entries."""
        middle, reach = int(key) * self.rows >> 64, _REACH
        while True:
            low, high = max(0, middle - reach), min(self.rows, middle + reach)
            found = _at(file, 8 * low, high - low, np.uint64)
            if (low == 0 or found[0] < key) and (high == self.rows or found[-1] > key | _LOW):
                break
            reach *= 8
        paths = 8 * self.rows
        offsets = paths + 4 * self.blocks
        for entry in _of(key, found):
            block = entry & int(_LOW)
            (path,) = _at(file, paths + 4 * block, 1, np.int32).tolist()
            (offset,) = _at(file, offsets + 8 * block, 1, np.int64).tolist()
            yield self.paths[path], offset


def _room(count: int, kind: type[np.generic]) -> NDArray[Any]:
    """Outside of the heap, where arrays that come and go leave holes; memory is taken as it is written."""
    if count == 0:
        return np.empty(0, kind)
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return np.frombuffer(mmap.mmap(-1, count * np.dtype(kind).itemsize, **private), kind)


def _at(file: IO[bytes], at: int, count: int, kind: type[np.generic]) -> NDArray[Any]:
    file.seek(at)
    values = np.empty(count, kind)
    _read(file, values)
    return values


def _read(file: IO[bytes], to: NDArray[Any]) -> None:
    left = to.view(np.uint8).data
    while left:
        got = file.readinto(left)  # type: ignore[attr-defined]
        if not got:
            raise OSError(errno.EIO, "the index of the log is cut off")
        left = left[got:]


def _of(key: np.uint64, entries: NDArray[np.uint64]) -> list[int]:
    """Those of an id, of sorted ones."""
    low, high = np.searchsorted(entries, key), np.searchsorted(entries, key | _LOW, side="right")
    found: list[int] = entries[low:high].tolist()
    return found


def hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    """The same in every process, unlike Python's own."""
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, "<u8")


def _keys(ids: Sequence[str]) -> NDArray[np.uint64]:
    """The low bits are left for the block."""
    return hashes(ids) & ~_LOW
