"""The newest rows of a model file, which mostly get their label soon; older ones are looked up in the log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrant.serve.monitor.log.index import hashes

_BYTES = 16 << 20
_NONE = -1


def rows_kept(classes: int) -> int:
    """As many as these bytes hold, up to 20,000."""
    return max(100, min(20_000, _BYTES // (4 * classes)))


class RecentRows:
    """The last `most` rows by 64 bits of the id's hash, in arrays of a fixed size that are taken at the first row: an
    object for each would be 350 bytes, and as they come and go the heap around them grows. Of an id that comes again
    the first row counts.

    A row's id leads to the newest row with such low bits (`_newest`), and each row to the one `_before`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._rows: NDArray[np.float32] | None = None
        self._came = 0

    def get(self, id_: str) -> NDArray[np.float32] | None:
        if self._rows is None:
            return None
        place = self._find(int(hashes([id_])[0]))
        return None if place == _NONE else self._rows[place].copy()

    def add(self, ids: Sequence[str], log_p: NDArray[np.float64]) -> None:
        if self._rows is None:
            self._begin(log_p.shape[1])
        assert self._rows is not None
        for key, row in zip(hashes(ids).tolist(), log_p, strict=True):
            if self._find(key) != _NONE:
                continue
            place = self._came % self.most
            if self._came >= self.most:
                self._forget(place)
            self._rows[place] = row
            self._key[place], self._before[place] = key, self._newest[key & self._low]
            self._newest[key & self._low] = place
            self._came += 1

    def _begin(self, classes: int) -> None:
        starts = 1 << (self.most - 1).bit_length()
        self._low = starts - 1
        self._rows = np.empty((self.most, classes), np.float32)
        self._key = np.empty(self.most, np.uint64).data
        self._before = np.empty(self.most, np.int32).data
        self._newest = np.full(starts, _NONE, np.int32).data

    def _find(self, key: int) -> int:
        place = self._newest[key & self._low]
        while place != _NONE and self._key[place] != key:
            place = self._before[place]
        return place

    def _forget(self, place: int) -> None:
        """The oldest row, which is the last of those with its low bits."""
        start = self._key[place] & self._low
        at = self._newest[start]
        if at == place:
            self._newest[start] = _NONE
            return
        while self._before[at] != place:
            at = self._before[at]
        self._before[at] = _NONE
