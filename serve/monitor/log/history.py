"""What the feedback log holds of each model: where its rows lie, which labels are known, which files answered.

One for all files of a model, since a label says an id and no file: versions, canaries and the files before a reload
share it, and a file that comes needs to read nothing. The log of an earlier start is read once, for all models.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from calibrant.artifacts.feedback_records import CHOSEN, LABELS, records, segments
from calibrant.serve.monitor.log.index import Index
from calibrant.serve.monitor.log.known_labels import KnownLabels

log = logging.getLogger(__name__)

Place = tuple[Path, int]
_MOST_PLACES = 32  # of an id that came again and again
_AT_A_TIME, _PAUSE = 0.002, 0.001  # seconds of reading and of rest: requests are answered meanwhile


class History:
    """Of one model. `lock` is held by who takes labels, so that none counts twice."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: of the log, where there is one."""
        self.lock = threading.RLock()
        self.known, self.chosen = KnownLabels(folder), KnownLabels(folder)  # chosen: of rows that are no random sample
        self._index, self._index_lock = Index(), threading.Lock()
        self._files: dict[str, tuple[str, ...]] = {}
        self._classes: dict[tuple[str, ...], tuple[str, ...]] = {}

    def served_by(self, sha256: str, classes: tuple[str, ...]) -> None:
        self._files[sha256] = self._classes.setdefault(classes, classes)  # one object, however many files

    def classes_of(self, sha256: str) -> tuple[str, ...] | None:
        return self._files.get(sha256)

    def logged(self, path: Path, offset: int, ids: list[str]) -> None:
        """Tells where the log holds rows."""
        with self._index_lock:
            self._index.add(path, offset, ids)

    def places(self, id_: str) -> list[Place]:
        """Lines that may hold the id, oldest first."""
        with self._index_lock:
            return list(islice(self._index.places(id_), _MOST_PLACES))

    def knew(self, record: dict[str, Any]) -> None:
        """Labels of an earlier log, so that none counts twice."""
        with self.lock:
            for id_, label in zip(record["ids"], record["labels"], strict=True):
                if record["record"] != CHOSEN:
                    self.known.update({id_: label})
                    self.chosen.discard(id_)
                elif id_ not in self.known:
                    self.chosen.update({id_: label})


class Histories:
    """Of all models in one log."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._of: dict[str, History] = {}
        self._lock = threading.Lock()
        self.restored = threading.Event()  # labels wait while an earlier log is read
        self.restored.set()

    def of(self, name: str) -> History:
        with self._lock:
            return self._of.setdefault(name, History(self._folder))

    def restore_later(self, own: Callable[[Path], bool]) -> None:
        """In a thread of its own: a large log must not hold up the start. Labels wait until it is done."""
        self.restored.clear()

        def work() -> None:
            try:
                self.restore(own)
            except Exception:
                log.exception(
                    "%s: the earlier log cannot be read; labels for its predictions will be unknown", self._folder
                )
            finally:
                self.restored.set()

        threading.Thread(target=work, name="restore", daemon=True).start()

    def restore(self, own: Callable[[Path], bool] = lambda path: False) -> None:
        """Reads an earlier log, so that its predictions can get labels and no label counts twice. Not segments that
        are this process's `own`."""
        if self._folder is None:
            return
        names: dict[str, set[str]] = {}  # of the models that a file served as
        since = time.monotonic()
        for path in segments(self._folder):
            if own(path):
                continue
            with contextlib.suppress(FileNotFoundError):  # dropped by retention meanwhile
                for offset, record in records(path):
                    self._take(path, offset, record, names)
                    if time.monotonic() - since > _AT_A_TIME:
                        time.sleep(_PAUSE)
                        since = time.monotonic()

    def _take(self, path: Path, offset: int, record: dict[str, Any], names: dict[str, set[str]]) -> None:
        kind = record["record"]
        if kind == "model":
            names.setdefault(record["sha256"], set()).add(record["model"])
            self.of(record["model"]).served_by(record["sha256"], tuple(record["classes"]))
        elif kind == "predictions":
            for name in names.get(record["sha256"], ()):
                self.of(name).logged(path, offset, record["ids"])
        elif kind in (LABELS, CHOSEN):
            self.of(record["model"]).knew(record)
