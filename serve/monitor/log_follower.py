"""Predictions of other processes, read from the feedback log while they write it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_logits import decode
from calibrant.serve.monitor.monitor import Monitor

log = logging.getLogger(__name__)

_WAITING = 1000  # lines of a file that this process has not loaded yet


class LogFollower:
    """Follows every segment but those of `own`; what was there at the start is the past."""

    def __init__(self, folder: Path, own: Callable[[Path], bool], monitors: Sequence[Monitor]) -> None:
        self._folder, self._own, self._monitors = folder, own, monitors
        self._lock = threading.Lock()
        self._read = {path: path.stat().st_size for path in feedback.segments(folder)}
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
                    monitor.take_in(path, offset, record["ids"], logits)

    def _monitor_of(self, record: dict[str, Any]) -> Monitor | None:
        same = [m for m in tuple(self._monitors) if m.model.sha256 == record["sha256"]]
        return next((m for m in same if m.model.version == record.get("version")), same[0] if same else None)

    def _fresh(self) -> Iterator[tuple[Path, int, dict[str, Any]]]:
        for path in feedback.segments(self._folder):
            if self._own(path):
                continue
            try:
                for offset, record, end in feedback.records_from(path, self._read.get(path, 0)):
                    self._read[path] = end
                    if record["record"] == "predictions":
                        yield path, offset, record
            except OSError:  # dropped by retention
                continue
