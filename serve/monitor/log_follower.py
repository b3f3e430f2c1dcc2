"""What the feedback log says: of an earlier start, and of other processes while they write it."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from calibrant.artifacts import feedback_scores
from calibrant.artifacts.feedback_logits import decode
from calibrant.artifacts.feedback_records import (
    CHOSEN,
    LABELS,
    PARQUET,
    records,
    records_from,
    segment_name,
    segments,
)
from calibrant.serve.monitor.monitor import Monitor

log = logging.getLogger(__name__)

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
                monitor = self._monitor_of(record)
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

    def _monitor_of(self, record: dict[str, Any]) -> Monitor | None:
        same = [m for m in tuple(self._monitors) if m.model.sha256 == record["sha256"]]
        return next((m for m in same if m.model.version == record.get("version")), same[0] if same else None)

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


def restore_later(monitor: Monitor, folder: Path) -> None:
    """In a thread of its own: a large log must not hold up the start. Labels wait until it is done."""
    monitor.restored.clear()

    def work() -> None:
        try:
            restore(monitor, folder)
        except Exception:
            log.exception("%s: the earlier log cannot be read; labels for its predictions will be unknown", folder)
        finally:
            monitor.restored.set()

    threading.Thread(target=work, name="restore", daemon=True).start()


def restore(monitor: Monitor, folder: Path) -> None:
    """Reads an earlier log of a model, so that its predictions can get labels and no label counts twice.

    Labels of what an older file of the same name served go to the log, not into this file's figures.
    """
    name, files = monitor.model.name, {monitor.model.sha256}
    for path in segments(folder):
        if monitor.writer is not None and path == monitor.writer.path:
            continue
        for offset, record in records(path):
            if record["record"] == "model" and record["model"] == name:
                files.add(record["sha256"])
            elif record["record"] == "predictions" and record["sha256"] in files:
                with monitor.locked():
                    monitor.served_rows.logged(path, offset, record["ids"])
            elif record["record"] in (LABELS, CHOSEN) and record["model"] == name:
                monitor.knew(record)
