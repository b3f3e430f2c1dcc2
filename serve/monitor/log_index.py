"""Where in the feedback log each prediction lies, so that a label that comes days later finds its row."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_records import is_there

_PART_ROWS = 1 << 18
_BLOCK_BITS = 20  # of an entry: the number of the row's block, of which a part has no more than rows
_LOW = np.uint64((1 << _BLOCK_BITS) - 1)
_UNSORTED = 1 << 13


class Index:
    """8 bytes a row and 12 a block, for as long as the log has them. Parts of a fixed size, sorted where they lie:
    one table of all rows, sorted anew as it grows, took 70 bytes a row of memory that was not given back."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def add(self, path: Path, offset: int, ids: Sequence[str]) -> None:
        if not self._parts or self._parts[-1].rows + len(ids) > _PART_ROWS:
            self._parts = [part for part in self._parts if any(map(is_there, part.paths))]
            self._parts.append(_Part(len(ids)))
        self._parts[-1].add(path, offset, _keys(ids))

    def places(self, id_: str) -> Iterator[tuple[Path, int]]:
        """Lines that may hold the id, oldest first; the caller looks for the id itself in them."""
        key = _keys([id_])[0]
        for part in self._parts:
            yield from part.places(key)


class _Part:
    """An entry is the high bits of the id's hash and the number of its block."""

    def __init__(self, rows: int) -> None:
        self.rows = self._sorted = 0
        self.paths: list[Path] = []
        self._path, self._offset = array("i"), array("q")  # of each block
        self._entries = np.empty(max(1024, rows), np.uint64)

    def add(self, path: Path, offset: int, keys: NDArray[np.uint64]) -> None:
        if not self.paths or self.paths[-1] != path:
            self.paths.append(path)
        end = self.rows + len(keys)
        if end > len(self._entries):
            grown = np.empty(max(end, min(2 * len(self._entries), _PART_ROWS)), np.uint64)
            grown[: self.rows] = self._entries[: self.rows]
            self._entries = grown
        self._entries[self.rows : end] = keys | np.uint64(len(self._offset))
        self._path.append(len(self.paths) - 1)
        self._offset.append(offset)
        self.rows = end
        if self.rows - self._sorted >= _UNSORTED:
            self._entries[: self.rows].sort()
            self._sorted = self.rows

    def places(self, key: np.uint64) -> Iterator[tuple[Path, int]]:
        old, new = self._entries[: self._sorted], self._entries[self._sorted : self.rows]
        low, high = np.searchsorted(old, key), np.searchsorted(old, key | _LOW, side="right")
        for entry in (*old[low:high].tolist(), *new[(new & ~_LOW) == key].tolist()):
            block = entry & int(_LOW)
            yield self.paths[self._path[block]], self._offset[block]


def _keys(ids: Sequence[str]) -> NDArray[np.uint64]:
    """The same in every process, unlike Python's own hash; the low bits are left for the block."""
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, "<u8") & ~_LOW
