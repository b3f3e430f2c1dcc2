"""Where in the feedback log each prediction lies, so that a label that comes days later finds its row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class Index:
    """16 bytes a row: the hash of its id, and its block."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._lines: list[tuple[int, int]] = []  # of each block: path, offset
        self._fresh: list[tuple[int, NDArray[np.int64]]] = []  # blocks that are not sorted in yet, hashes of their ids
        self._keys = np.zeros(0, np.int64)
        self._blocks = np.zeros(0, np.int64)

    def add(self, path: Path, offset: int, ids: Sequence[str]) -> None:
        if not self._paths or self._paths[-1] != path:
            self._paths.append(path)
        self._fresh.append((len(self._lines), _hashes(ids)))
        self._lines.append((len(self._paths) - 1, offset))
        if len(self._fresh) >= 512:
            self._sort_in()

    def find(self, id_: str) -> tuple[Path, int] | None:
        """The line that may hold the id; the caller looks for the id itself in it."""
        key = _hashes([id_])[0]
        at = int(np.searchsorted(self._keys, key))
        if at < len(self._keys) and self._keys[at] == key:
            return self._line(int(self._blocks[at]))
        return next((self._line(block) for block, keys in self._fresh if (keys == key).any()), None)

    def _line(self, block: int) -> tuple[Path, int]:
        path, offset = self._lines[block]
        return self._paths[path], offset

    def _sort_in(self) -> None:
        keys = np.concatenate([self._keys, *(k for _, k in self._fresh)])
        blocks = np.concatenate([self._blocks, *(np.full(len(k), b, np.int64) for b, k in self._fresh)])
        order = np.argsort(keys, kind="stable")
        self._keys, self._blocks, self._fresh = keys[order], blocks[order], []


def _hashes(ids: Sequence[str]) -> NDArray[np.int64]:
    """The same in every process, unlike Python's own hash."""
    digests = b"".join(hashlib.blake2b(i.encode(), digest_size=8).digest() for i in ids)
    return np.frombuffer(digests, "<i8")
