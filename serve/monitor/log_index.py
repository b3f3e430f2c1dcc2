"""Where in the feedback log each prediction lies, so that a label that comes days later finds its row."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

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
    memory, the others in files without a name in the log's own folder, which end with the process."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._segments: dict[Path, Path] = {}  # one object for each, however often a reader lists the folder

    def add(self, path: Path, offset: int, ids: Sequence[str]) -> None:
        if not self._parts or self._parts[-1].rows + len(ids) > _OPEN_ROWS:
            self._put_away()
            self._parts.append(_Part(len(ids)))
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

    def __init__(self, rows: int) -> None:
        self.rows = self._sorted = 0
        self.paths: list[Path] = []  # each once
        self.joined = False
        self._path, self._offset = array("i"), array("q")  # of each block
        self._entries = np.empty(max(1024, rows), np.uint64)
        self._file: IO[bytes] | None = None  # then it holds these three, in the order entries, paths, offsets

    @classmethod
    def of(cls, parts: Sequence[_Part]) -> _Part:
        """One of several, the oldest first."""
        whole = cls(sum(part.rows for part in parts))
        whole.joined = True
        for part in parts:
            entries, path, offset = part._all()
            end = whole.rows + part.rows
            whole._entries[whole.rows : end] = entries + np.uint64(len(whole._offset))
            numbers = np.array([whole._number(path) for path in part.paths], np.int32)
            whole._path.frombytes(numbers[path].tobytes())
            whole._offset.frombytes(offset.tobytes())
            whole.rows = end
        return whole

    def add(self, path: Path, offset: int, keys: NDArray[np.uint64]) -> None:
        end = self.rows + len(keys)
        if end > len(self._entries):
            grown = np.empty(max(end, min(2 * len(self._entries), _OPEN_ROWS)), np.uint64)
            grown[: self.rows] = self._entries[: self.rows]
            self._entries = grown
        self._entries[self.rows : end] = keys | np.uint64(len(self._offset))
        self._path.append(self._number(path))
        self._offset.append(offset)
        self.rows = end
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
        entries, path, offset = self._all()
        try:
            file = tempfile.TemporaryFile(dir=self.paths[-1].parent)  # noqa: SIM115, it lives as long as the part
            weakref.finalize(self, file.close)
            for values in (entries, path, offset):
                file.write(values.tobytes())
            file.flush()
        except OSError as error:
            log.warning("the index of the log stays in memory: %s", error)
            return
        self._file = file
        self._path, self._offset, self._entries = array("i"), array("q"), np.empty(0, np.uint64)

    def _all(self) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]]:
        if self._file is None:
            return self._entries[: self.rows], np.array(self._path, np.int32), np.array(self._offset, np.int64)
        size = os.fstat(self._file.fileno()).st_size
        blocks = (size - 8 * self.rows) // 12
        data = os.pread(self._file.fileno(), size, 0)
        return (
            np.frombuffer(data, np.uint64, self.rows),
            np.frombuffer(data, np.int32, blocks, 8 * self.rows),
            np.frombuffer(data, np.int64, blocks, 8 * self.rows + 4 * blocks),
        )

    def places(self, key: np.uint64) -> Iterator[tuple[Path, int]]:
        if self._file is not None:
            yield from self._places_on_disk(self._file.fileno(), key)
            return
        old, new = self._entries[: self._sorted], self._entries[self._sorted : self.rows]
        for entry in (*_of(key, old), *new[(new & ~_LOW) == key].tolist()):
            block = entry & int(_LOW)
            yield self.paths[self._path[block]], self._offset[block]

    def _places_on_disk(self, fd: int, key: np.uint64) -> Iterator[tuple[Path, int]]:
        """Hashes lie evenly, so where one should be is known to within some dozens of entries."""
        middle, reach = int(key) * self.rows >> 64, _REACH
        while True:
            low, high = max(0, middle - reach), min(self.rows, middle + reach)
            found = np.frombuffer(os.pread(fd, 8 * (high - low), 8 * low), np.uint64)
            if (low == 0 or found[0] < key) and (high == self.rows or found[-1] > key | _LOW):
                break
            reach *= 8
        paths = 8 * self.rows
        offsets = paths + 4 * ((os.fstat(fd).st_size - paths) // 12)
        for entry in _of(key, found):
            block = entry & int(_LOW)
            (path,) = np.frombuffer(os.pread(fd, 4, paths + 4 * block), np.int32).tolist()
            (offset,) = np.frombuffer(os.pread(fd, 8, offsets + 8 * block), np.int64).tolist()
            yield self.paths[path], offset


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
