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
from typing import IO

from calibrant.serve.monitor.log.index import hashes

log = logging.getLogger(__name__)

_SLOT = struct.Struct("<Qi")  # 64 bits of the id's hash, 0 where the slot is free; the label
_SLOTS = 1 << 16  # of a table, of which half are filled: then a key lies 2 slots from where it should, in the mean
_READ = 32  # slots at a time
_NONE = -1  # of a label that was taken back


class KnownLabels:
    """By 64 bits of the id's hash: among ten million labels two share one with a chance of 3 in a million.

    In a file without a name, which ends with the process, of 24 bytes a label; what the disk does not take is held in
    memory. The file is a row of tables, each filled before the next begins. In a table a key lies in the slot of its
    high bits or the next free one behind.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: of the file; the system's own for such files unless given."""
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._filled: list[int] = []  # slots of each table
        self._held: dict[int, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id_: str) -> bool:
        return self.get(id_) is not None

    def get(self, id_: str) -> int | None:
        label = self._find(_key(id_))[0]
        return None if label == _NONE else label

    def update(self, labels: Mapping[str, int]) -> None:
        for id_, label in labels.items():
            self._set(id_, label)

    def discard(self, id_: str) -> None:
        if id_ in self:
            self._set(id_, _NONE)

    def _set(self, id_: str, label: int) -> None:
        key = _key(id_)
        was, table, slot = self._find(key)
        self._count += (label != _NONE) - (was not in (None, _NONE))
        try:
            if table is None:
                table = self._open_table()
                slot = self._find_in(table, key)[1]
                self._write(table, slot, _SLOT.pack(key, label))
                self._filled[table] += 1
            else:
                self._write(table, slot, _SLOT.pack(key, label))
        except OSError as error:
            if not self._held:
                log.warning("labels that are known stay in memory: %s", error)
            self._held[key] = label
        else:
            self._held.pop(key, None)

    def _find(self, key: int) -> tuple[int | None, int | None, int]:
        """The label of a key, and the table and slot where it lies on disk."""
        held = self._held.get(key)
        for table in reversed(range(len(self._filled))):
            label, slot = self._find_in(table, key)
            if label is not None:
                return label if held is None else held, table, slot
        return held, None, 0

    def _find_in(self, table: int, key: int) -> tuple[int | None, int]:
        """Its label, if it is in this table, and the slot where it is or would be."""
        assert self._file is not None
        slot = key * _SLOTS >> 64
        while True:
            many = min(_READ, _SLOTS - slot)
            self._file.seek((table * _SLOTS + slot) * _SLOT.size)
            data = self._file.read(many * _SLOT.size)
            if not data:
                raise OSError(errno.EIO, "the known labels are cut off")
            for found, label in _SLOT.iter_unpack(data):
                if found == key:
                    return label, slot
                if found == 0:
                    return None, slot
                slot += 1
            slot %= _SLOTS

    def _open_table(self) -> int:
        """One with room."""
        if self._file is None:
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115, it lives as long as this
            weakref.finalize(self, file.close)
            self._file = file
        if not self._filled or 2 * self._filled[-1] >= _SLOTS:
            self._file.truncate((len(self._filled) + 1) * _SLOTS * _SLOT.size)  # free slots take no room on most disks
            self._filled.append(0)
        return len(self._filled) - 1

    def _write(self, table: int, slot: int, data: bytes) -> None:
        assert self._file is not None
        self._file.seek((table * _SLOTS + slot) * _SLOT.size)
        if self._file.write(data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _key(id_: str) -> int:
    return int(hashes([id_])[0]) or 1
