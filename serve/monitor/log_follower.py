"""What the feedback log says of other processes while they write it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from calibrant.artifacts import feedback_scores
from calibrant.artifacts.feedback_logits import decode
from calibrant.artifacts.feedback_records import (
    PARQUET,
    records_from,
    segment_name,
    segments,
)
from calibrant.serve.monitor.monitor import Monitor
from calibrant.serve.monitor.taking import monitor_of

_ALL = sys.maxsize  # of a segment that was read to its end and does not grow
_WAITING = 1000  # lines of a file that this process has not loaded yet


class LogFollower:
    """Follows every segment but those of `own`; what was there at the start is the past."""

    def __init__(self, folder: Path, own: Callable[[Path], bool], monitors: Sequence[Monitor]) -> None:
        self._folder, self._own, self._monitors = folder, own, monitors
        self._lock = threading.Lock()
        self._read = {segment_name(path): _end(path) for path in segments(folder)}  # a compacted one is read on
        self._early: list[tuple[Path, int, dict[str, Any]]] = []

    def round(self) -> None:
        """Hands what was written since the last round to the monitors of the files that predicted it."""
        with self._lock:
            early, self._early = self._early, []
            for path, offset, record in [*early, *self._fresh()]:
                monitor = monitor_of(tuple(self._monitors), record)
                if monitor is None:  # a file that changed a moment ago, which this process is still loading
                    self._early = [*self._early[-_WAITING:], (path, offset, record)]
                else:
                    logits = decode(record, len(monitor.model.classes))
                    monitor.take_in(path, offset, record["ids"], logits, feedback_scores.decode(record))

    def awaits(self, ids: Collection[str]) -> bool:
        """Whether predictions of these ids wait for a file that this process is still loading."""
        wanted = set(ids)
        with self._lock:
            return any(not wanted.isdisjoint(record["ids"]) for _, _, record in self._early)

    def _fresh(self) -> Iterator[tuple[Path, int, dict[str, Any]]]:
        for path in segments(self._folder):
            name = segment_name(path)
            if self._own(path) or self._read.get(name) == _ALL:
                continue
            try:
                for offset, record, end in records_from(path, self._read.get(name, 0)):
                    self._read[name] = end
                    if record["record"] == "predictions":
                        yield path, offset, record
                if path.name.endswith(PARQUET):  # which does not grow
                    self._read[name] = _ALL
            except OSError:  # dropped by retention
                continue


def _end(path: Path) -> int:
    """Behind all that is there."""
    return _ALL if path.name.endswith(PARQUET) else path.stat().st_size
