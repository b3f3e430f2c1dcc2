"""The feedback log: what a server predicted, and the labels that came later.

A folder of segments, each a file of JSON lines that is only ever appended to. The first line of a segment names the
format; then

    {"record": "model", "model", "version", "sha256", "classes"}       before the first predictions of a model; of a
                                                                       server also "watch", what its alarms are set to
                                                                       (calibration.monitoring.alarms.Watch)
    {"record": "predictions", "sha256", "time", "ids", "logits"}       a block of rows: seconds since 1970, base64 of
                                                                       little-endian float32 [rows, classes]; also
                                                                       "ms", how long each took, null if unknown,
                                                                       and "version", under which it was served
    {"record": "labels", "model", "time", "ids", "labels"}             class numbers

`logits` are those that the deployed file returned, before any per-request knob. `ms` is the time in the queue and in
the network, in milliseconds, of the request that the row came with; logs of before it was recorded lack it. Labels may
come before their predictions, twice, or never; the last label of an id counts, and the first prediction. A line that
was cut off by a crash is skipped and counted.
"""

from __future__ import annotations

import base64
import calendar
import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, Source
from calibrant.errors import DataError, FormatError

FORMAT_VERSION = 1
_SUFFIX = ".feedback.jsonl"
_STAMP = "%Y%m%dT%H%M%S"


@dataclass(frozen=True)
class Model:
    name: str
    version: str
    sha256: str
    classes: tuple[str, ...]
    watch: dict[str, Any] | None = field(default=None, compare=False)  # since when and how its stream is watched


@dataclass(frozen=True)
class Arrivals:
    """Labels in the order in which they first came: of which row, what they said, when. A later correction is not here.

    What happens at an arrival, such as an alarm, happened to the label of that moment.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    times: NDArray[np.float64]


@dataclass(frozen=True)
class Served:
    """Everything that one deployed file predicted, with the labels that are known; -1 is unknown.

    `latency_ms`: queue and network, milliseconds; NaN where the log does not say.
    """

    model: Model
    ids: tuple[str, ...]
    times: NDArray[np.float64]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    latency_ms: NDArray[np.float32]
    arrivals: Arrivals

    def predictions(self) -> Predictions:
        """As a predictions file of the deployed logits: temperature and prior are applied already."""
        model = {"name": self.model.name, "version": self.model.version, "onnx_sha256": self.model.sha256,
                 "applied": "everything in the deployed file"}  # fmt: skip
        return Predictions(self.ids, self.labels, self.logits, Source(self.model.classes, model=model))


@dataclass(frozen=True)
class Feedback:
    """A log, read and joined."""

    served: tuple[Served, ...]
    damaged_lines: int
    repeated_ids: int
    labels_without_prediction: tuple[str, ...]


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
    ) -> None:
        self.folder = Path(folder)
        self.segment_bytes, self.keep_bytes, self.keep_days = segment_bytes, keep_bytes, keep_days
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
    ) -> tuple[Path, int]:
        """Appends a block of rows; gives the segment and the offset of its line."""
        data = base64.b64encode(np.ascontiguousarray(logits, "<f4").tobytes()).decode()
        took = {} if latency_ms is None else {"ms": list(latency_ms)}
        with self._lock:
            self._rotate()
            if model.sha256 not in self._named:
                self.model(model)
            offset = self._line({"record": "predictions", "sha256": model.sha256, "version": model.version,
                                 "time": list(times), "ids": list(ids), **took, "logits": data})  # fmt: skip
            return self.path, offset

    def model(self, model: Model) -> None:
        """Describes a model, as `predictions` does by itself in each segment. The last description holds."""
        watch = {} if model.watch is None else {"watch": model.watch}
        with self._lock:
            self._line({"record": "model", "model": model.name, "version": model.version, "sha256": model.sha256,
                        "classes": list(model.classes), **watch})  # fmt: skip
            self._named.add(model.sha256)

    def labels(self, model: str, ids: Sequence[str], labels: Sequence[int], *, at: float | None = None) -> None:
        with self._lock:
            self._rotate()
            self._line({"record": "labels", "model": model, "time": time.time() if at is None else at,
                        "ids": list(ids), "labels": [int(k) for k in labels]})  # fmt: skip

    def wrote(self, path: Path) -> bool:
        """Whether a segment is this writer's."""
        return path.name in self._own

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

    def _rotate(self) -> None:
        if self._written >= self.segment_bytes:
            self.close()
            self._begin()

    def _begin(self) -> None:
        stamp = self._stamp()
        while True:
            self.path = self.folder / f"{stamp}-{os.getpid()}-{self._number:06d}{_SUFFIX}"
            self._number += 1
            try:
                self._stream = open(self.path, "xb", buffering=0)  # noqa: SIM115 - lives as long as the segment
                break
            except FileExistsError:
                continue
        written, self._written = self._written, 0
        try:
            self._line({"record": "segment", "kind": "feedback", "format_version": FORMAT_VERSION, "time": time.time()})
        except OSError:
            self._stream.close()
            self._stream, self._written = None, written  # to be tried again
            self.path.unlink(missing_ok=True)
            raise
        self._named = set()
        self._own.add(self.path.name)
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
                path.unlink(missing_ok=True)
                old.remove(path)
        if self.keep_bytes is not None:
            size = sum(p.stat().st_size for p in old)
            for path in [p for p in old if not self._may_grow(p)]:
                if size <= self.keep_bytes:
                    break
                size -= path.stat().st_size
                path.unlink(missing_ok=True)

    def _may_grow(self, path: Path) -> bool:
        """Whether another process that shares the folder may still be writing it."""
        return path.name not in self._own and time.time() - path.stat().st_mtime < 60


def segments(folder: str | Path) -> list[Path]:
    """In order of their beginning."""
    return sorted(Path(folder).glob(f"*{_SUFFIX}"))


@dataclass
class Damage:
    lines: int = 0


def records(path: Path, damage: Damage | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Offset and content of each whole line; refuses a segment of a newer format."""
    offset = 0
    with open(path, "rb") as stream:
        for line in stream:
            at, offset = offset, offset + len(line)
            record = _parse(line)
            if record is None:
                if damage is not None:
                    damage.lines += 1
                continue
            if record["record"] == "segment" and int(record.get("format_version", 0)) > FORMAT_VERSION:
                raise FormatError(
                    f"feedback format {record['format_version']} is newer than this Calibrant reads ({FORMAT_VERSION})",
                    where=path, fix="update calibrant",
                )  # fmt: skip
            yield at, record


def records_from(path: Path, start: int) -> Iterator[tuple[int, dict[str, Any], int]]:
    """Offset, content and end of each whole line from `start` on, of a segment that may still be growing.

    What follows the last line break is left for the next time; a damaged line is passed over.
    """
    with open(path, "rb") as stream:
        stream.seek(start)
        offset = start
        for line in stream:
            if not line.endswith(b"\n"):
                return
            at, offset = offset, offset + len(line)
            record = _parse(line)
            if record is not None:
                yield at, record, offset


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "record" in record else None


def decode_logits(record: dict[str, Any], classes: int) -> NDArray[np.float32]:
    flat = np.frombuffer(base64.b64decode(record["logits"]), "<f4")
    return flat.reshape(len(record["ids"]), classes)


@dataclass
class _Gathered:
    model: Model
    ids: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    ms: list[float | None] = field(default_factory=list)


@dataclass(slots=True)
class _Label:
    number: int  # of its arrival
    first: int
    last: int
    time: float  # of its arrival


def read_feedback(folder: str | Path) -> Feedback:
    """The whole log, joined; one `Served` for each deployed file in it, in order of appearance."""
    folder = Path(folder)
    paths = segments(folder)
    if not paths:
        raise DataError("holds no feedback log", where=folder, fix="serve with --feedback-log FOLDER")
    damage = Damage()
    gathered: dict[str, _Gathered] = {}
    labels: dict[tuple[str, str], _Label] = {}  # in the order in which they first came
    for path in paths:
        for _, record in records(path, damage):
            if not _gather(record, gathered, labels):
                damage.lines += 1
    seen: set[tuple[str, str]] = set()
    repeated, served = 0, []
    for block in gathered.values():
        one, again = _join(block, labels, seen)
        served.append(one)
        repeated += again
    orphans = tuple(sorted(id_ for key in labels.keys() - seen for id_ in [key[1]]))
    return Feedback(tuple(served), damage.lines, repeated, orphans)


def _gather(record: dict[str, Any], gathered: dict[str, _Gathered], labels: dict[tuple[str, str], _Label]) -> bool:
    """False for predictions of a model whose description was lost."""
    kind = record["record"]
    if kind == "model":
        model = Model(record["model"], record["version"], record["sha256"], tuple(record["classes"]))
        named = gathered.setdefault(model.sha256, _Gathered(model))
        if "watch" in record:  # of the last start
            named.model = replace(named.model, watch=record["watch"])
    elif kind == "predictions":
        block = gathered.get(record["sha256"])
        if block is None:
            return False
        block.ids += record["ids"]
        block.times += record["time"]
        block.ms += record.get("ms") or [None] * len(record["ids"])
        block.logits.append(decode_logits(record, len(block.model.classes)))
    elif kind == "labels":
        for id_, k in zip(record["ids"], record["labels"], strict=True):
            label = labels.setdefault((record["model"], id_), _Label(len(labels), k, k, record["time"]))
            label.last = k
    return True


def _join(block: _Gathered, labels: dict[tuple[str, str], _Label], seen: set[tuple[str, str]]) -> tuple[Served, int]:
    keep: list[int] = []
    for row, id_ in enumerate(block.ids):
        key = (block.model.name, id_)
        if key not in seen:
            seen.add(key)
            keep.append(row)
    classes = len(block.model.classes)
    logits = np.concatenate(block.logits) if block.logits else np.zeros((0, classes), np.float32)
    ids = tuple(block.ids[row] for row in keep)
    known = [labels.get((block.model.name, id_)) for id_ in ids]
    last = np.array([-1 if label is None else label.last for label in known], np.int64)
    took = np.array(block.ms, np.float32)  # None becomes NaN
    times = np.array([block.times[row] for row in keep])
    served = Served(block.model, ids, times, logits[keep], last, took[keep], _arrivals(known))
    return served, len(block.ids) - len(keep)


def _arrivals(known: Sequence[_Label | None]) -> Arrivals:
    came = sorted(((label, row) for row, label in enumerate(known) if label is not None), key=lambda c: c[0].number)
    return Arrivals(
        np.array([row for _, row in came], np.int64), np.array([label.first for label, _ in came], np.int64),
        np.array([label.time for label, _ in came], np.float64),
    )  # fmt: skip
