"""Which rows have a label already, and which: 12 bytes each, since a server takes them for as long as it lives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from calibrant.serve.monitor.log_index import hashes

_NEW = 1024  # in a dict, before they are sorted in
_NONE = -1


class KnownLabels:
    """By 64 bits of the id's hash: among ten million labels two share one with a chance of 3 in a million."""

    def __init__(self) -> None:
        self._new: dict[str, int] = {}
        self._keys, self._labels = np.empty(0, np.uint64), np.empty(0, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, id_: str) -> bool:
        return self.get(id_) is not None

    def get(self, id_: str) -> int | None:
        label = self._new.get(id_)
        if label is None:
            key = hashes([id_])[0]
            at = int(np.searchsorted(self._keys, key))
            known = at < len(self._keys) and self._keys[at] == key
            label = int(self._labels[at]) if known else _NONE
        return None if label == _NONE else label

    def update(self, labels: Mapping[str, int]) -> None:
        for id_, label in labels.items():
            self._count += id_ not in self
            self._new[id_] = label
        if len(self._new) > _NEW:
            self._sort_in()

    def discard(self, id_: str) -> None:
        if id_ in self:
            self._count -= 1
            self._new[id_] = _NONE

    def _sort_in(self) -> None:
        keys = np.concatenate([self._keys, hashes(list(self._new))])
        labels = np.concatenate([self._labels, np.array(list(self._new.values()), np.int32)])
        order = np.argsort(keys, kind="stable")  # of equal ones the newest is the last
        keys, labels = keys[order], labels[order]
        kept = np.append(keys[1:] != keys[:-1], True) & (labels != _NONE)
        self._keys, self._labels, self._new = keys[kept], labels[kept], {}
