"""Writes the feedback log; `feedback` says what is in it."""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback import Model
from calibrant.artifacts.feedback_logits import Kept
from calibrant.artifacts.feedback_records import CHOSEN, LABELS, PARQUET, SUFFIX, hold, remove, segment_name, segments
from calibrant.artifacts.feedback_scores import encode
from calibrant.errors import DataError

_STAMP = "%Y%m%dT%H%M%S"


class FeedbackWriter:
    """Appends to a log. Each `append` is one write to the kernel; `sync` makes what was written survive a power cut.

    A new segment is begun at every start, so that a line cut off by the last crash is never continued. Segments rotate
    at `segment_bytes`; the oldest go when the folder outgrows `keep_bytes` or they are older than `keep_days`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        segment_bytes: int = 64 << 20,
        keep_bytes: int | None = None,
        keep_days: float | None = None,
        segment_seconds: float | None = None,
        kept: Kept | None = None,
    ) -> None:
        """`segment_seconds`: a segment with rows or labels ends at that age. `kept`: what stays of the logits; all of
        them unless given."""
        self.folder = Path(folder)
        self.segment_bytes, self.keep_bytes, self.keep_days = segment_bytes, keep_bytes, keep_days
        self.segment_seconds, self._begun, self._empty = segment_seconds, 0.0, True
        self.kept = kept or Kept()
        self.path = self.folder
        self._stream: BinaryIO | None = None
        self._written = 0
        self._models: dict[str, Model] = {}
        self._named: set[str] = set()
        self._number = 0
        self._own: set[str] = set()
        self._lock = threading.RLock()  # several monitors, each with a thread, share a log
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._begin()
        except OSError as error:
            raise DataError(f"cannot write a feedback log here ({error.strerror})", where=self.folder) from None

    def predictions(
        self,
        model: Model,
        ids: Sequence[str],
        times: Sequence[float],
        logits: NDArray[np.float32],
        *,
        latency_ms: Sequence[float | None] | None = None,
        scores: NDArray[np.float32] | None = None,
    ) -> tuple[Path, int]:
        """Appends a block of rows; gives the segment and the offset of its line."""
        fields = {**self.kept.encode(logits), **encode(scores)}
        took = {} if latency_ms is None else {"ms": list(latency_ms)}
        with self._lock:
            self.rotate()
            if model.sha256 not in self._named:
                self.model(model)
            self._filled()
            offset = self._line({"record": "predictions", "sha256": model.sha256, "version": model.version,
                                 "time": list(times), "ids": list(ids), **took, **fields})  # fmt: skip
            return self.path, offset

    def model(self, model: Model) -> None:
        """Describes a model, as `predictions` does by itself in each segment. The last description holds."""
        watch = {} if model.watch is None else {"watch": model.watch}
        with self._lock:
            self._line({"record": "model", "model": model.name, "version": model.version, "sha256": model.sha256,
                        "classes": list(model.classes), **watch})  # fmt: skip
            self._named.add(model.sha256)

    def labels(
        self, model: str, ids: Sequence[str], labels: Sequence[int], *, at: float | None = None, chosen: bool = False
    ) -> None:
        with self._lock:
            self.rotate()
            kind = CHOSEN if chosen else LABELS
            self._filled()
            self._line({"record": kind, "model": model, "time": time.time() if at is None else at,
                        "ids": list(ids), "labels": [int(k) for k in labels]})  # fmt: skip

    def wrote(self, path: Path) -> bool:
        """Whether a segment is this writer's."""
        return segment_name(path) in self._own

    def sync(self) -> None:
        with self._lock:
            stream = None if self._stream is None else os.dup(self._stream.fileno())
        if stream is not None:  # outside the lock: a slow disk must not hold up who writes
            try:
                os.fsync(stream)
            finally:
                os.close(stream)

    def close(self) -> None:
        with self._lock:
            if self._stream is not None:
                try:
                    self.sync()
                finally:
                    self._stream.close()
                    self._stream = None

    def _line(self, record: dict[str, Any]) -> int:
        if self._stream is None:
            raise ValueError("the log is closed")
        offset, data = self._written, (json.dumps(record, separators=(",", ":")) + "\n").encode()
        left = memoryview(data)
        try:
            while left:  # unbuffered: one write call, but on a disk that runs full
                left = left[self._stream.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):  # so that the next line does not continue half of this one
                self._stream.truncate(offset)
                self._stream.seek(offset)
            raise
        self._written += len(data)
        return offset

    def rotate(self) -> None:
        """Ends the segment where it is large or old enough."""
        with self._lock:
            old = self.segment_seconds is not None and time.monotonic() - self._begun >= self.segment_seconds
            if self._written >= self.segment_bytes or (old and not self._empty):
                self.close()
                self._begin()

    def _filled(self) -> None:
        """The age of a segment counts from its first row or label: a quiet server makes no files."""
        if self._empty:
            self._empty, self._begun = False, time.monotonic()

    def _begin(self) -> None:
        stamp = self._stamp()
        while True:
            self.path = self.folder / f"{stamp}-{os.getpid()}-{self._number:06d}{SUFFIX}"
            self._number += 1
            if self.path.with_name(segment_name(self.path) + PARQUET).exists():
                continue  # which would be taken for this one
            try:
                self._stream = open(self.path, "xb", buffering=0)  # noqa: SIM115 - lives as long as the segment
                hold(self._stream)
                break
            except FileExistsError:
                continue
        written, self._written, self._empty = self._written, 0, True
        version = self.kept.format_version
        try:
            self._line({"record": "segment", "kind": "feedback", "format_version": version, "time": time.time()})
        except OSError:
            self._stream.close()
            self._stream, self._written = None, written  # to be tried again
            self.path.unlink(missing_ok=True)
            raise
        self._named = set()
        self._own.add(segment_name(self.path))
        self._drop_old()

    def _stamp(self) -> str:
        """The time, or where the clock was set back a moment after the newest segment, which must stay before this."""
        now = time.time()
        for path in segments(self.folder)[-1:]:
            with contextlib.suppress(ValueError):
                newest = calendar.timegm(time.strptime(path.name[:15], _STAMP))
                now = now if newest <= now else newest + 1
        return time.strftime(_STAMP, time.gmtime(now))

    def _drop_old(self) -> None:
        old = [p for p in segments(self.folder) if p != self.path]
        if self.keep_days is not None:
            limit = time.time() - 86400 * self.keep_days
            for path in [p for p in old if p.stat().st_mtime < limit]:
                remove(path)
                old.remove(path)
        if self.keep_bytes is not None:
            size = sum(p.stat().st_size for p in old)
            for path in [p for p in old if not self._may_grow(p)]:
                if size <= self.keep_bytes:
                    break
                size -= path.stat().st_size
                remove(path)

    def _may_grow(self, path: Path) -> bool:
        """Whether another process that shares the folder may still be writing it."""
        return segment_name(path) not in self._own and time.time() - path.stat().st_mtime < 60
