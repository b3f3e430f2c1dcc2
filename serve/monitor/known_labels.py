"""Which rows have a label already, and which: on disk, since a server takes labels for as long as it lives."""

from __future__ import annotations

import errno
import logging
import os
import struct
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from calibrant.serve.monitor.log_index import hashes

log = logging.getLogger(__name__)

_SLOT = struct.Struct("<Qi")  # 64 bits of the id's hash, 0 where the slot is free; the label
_SLOTS = 1 << 16  # of a table, of which half are filled: then a key lies 2 slots from where it should, in the mean
_READ = 32  # slots at a time
_NONE = -1  # of a label that was taken back


class KnownLabels:
    """By 64 bits of the id's hash: among ten million labels two share one with a chance of 3 in a million.

    In files without a name, which end with the process, of 24 bytes a label; what the disk does not take is held in
    memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: of the files; the system's own for such files unless given."""
        self._folder = folder
        self._tables: list[_Table] = []
        self._held: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id_: str) -> bool:
        return self.get(id_) is not None

    def get(self, id_: str) -> int | None:
        label = self._place(_key(id_))[0]
        return None if label == _NONE else label

    def update(self, labels: Mapping[str, int]) -> None:
        for id_, label in labels.items():
            self._set(id_, label)

    def discard(self, id_: str) -> None:
        if id_ in self:
            self._set(id_, _NONE)

    def _set(self, id_: str, label: int) -> None:
        key = _key(id_)
        was, table, slot = self._place(key)
        self._count += (label != _NONE) - (was not in (None, _NONE))
        try:
            if table is None:
                if not self._tables or 2 * self._tables[-1].filled >= _SLOTS:
                    self._tables.append(_Table(self._folder))
                table = self._tables[-1]
                slot = table.find(key)[1]
            table.put(slot, key, label, new=was is None)
        except OSError as error:
            if not self._held:
                log.warning("labels that are known stay in memory: %s", error)
            self._held[key] = label
        else:
            self._held.pop(key, None)

    def _place(self, key: int) -> tuple[int | None, _Table | None, int]:
        """The label of a key, and the table and slot where it lies on disk."""
        held = self._held.get(key)
        for table in reversed(self._tables):
            label, slot = table.find(key)
            if label is not None:
                return label if held is None else held, table, slot
        return held, None, 0


class _Table:
    """A key lies in the slot of its high bits or the next free one behind."""

    def __init__(self, folder: Path | None) -> None:
        self.filled = 0
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115, it lives as long as the table
        weakref.finalize(self, file.close)
        self._fd = file.fileno()
        os.ftruncate(self._fd, _SLOTS * _SLOT.size)  # free slots take no room on most disks

    def find(self, key: int) -> tuple[int | None, int]:
        """Its label, if it is here, and the slot where it is or would be."""
        slot = key * _SLOTS >> 64
        while True:
            data = os.pread(self._fd, _READ * _SLOT.size, slot * _SLOT.size)
            for found, label in _SLOT.iter_unpack(data):
                if found == key:
                    return label, slot
                if found == 0:
                    return None, slot
                slot += 1
            slot %= _SLOTS

    def put(self, slot: int, key: int, label: int, *, new: bool) -> None:
        if os.pwrite(self._fd, _SLOT.pack(key, label), slot * _SLOT.size) < _SLOT.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.filled += new


def _key(id_: str) -> int:
    return int(hashes([id_])[0]) or 1
