"""The feedback log: what a server predicted, and the labels that came later.

A folder of segments, each a file of JSON lines that is only ever appended to. The first line of a segment names the
format; then

    {"record": "model", "model", "version", "sha256", "classes"}       before the first predictions of a model; of a
                                                                       server also "watch", what its alarms are set to
                                                                       (calibration.monitoring.alarms.Watch)
    {"record": "predictions", "sha256", "time", "ids", "logits"}       a block of rows: seconds since 1970, base64 of
                                                                       little-endian float32 [rows, classes]; also
                                                                       "ms", how long each took, null if unknown,
                                                                       and "version", under which it was served;
                                                                       "dtype": "float16" where they are kept so;
                                                                       "top", "classes" and "rest" where only the
                                                                       largest are (`feedback_logits`);
                                                                       "feature_scores" where features are watched
                                                                       (`feedback_scores`)
    {"record": "labels", "model", "time", "ids", "labels"}             class numbers
    {"record": "chosen labels", ...}                                   the same, of rows that are no random sample

`logits` are those that the deployed file returned, before any per-request knob. `ms` is the time in the queue and in
the network, in milliseconds, of the request that the row came with; logs of before it was recorded lack it. Labels may
come before their predictions, twice, or never; the last label of an id counts, and the first prediction. What was
answered again under an id has no label of its own, but it was traffic, and counts as such. A line that was cut off by
a crash is skipped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback_scores
from calibrant.artifacts.feedback_logits import CUT, decode
from calibrant.artifacts.feedback_records import CHOSEN, LABELS, Damage, records, segments
from calibrant.artifacts.predictions import Predictions, Source
from calibrant.errors import DataError

__all__ = ["Again", "Arrivals", "Feedback", "Model", "Served", "read_feedback", "segments"]


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
class Again:
    """Answers under ids that had one already, in the order of the log; `before`: how many of the others came first."""

    before: NDArray[np.int64]
    times: NDArray[np.float64]
    logits: NDArray[np.float32]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class Served:
    """Everything that one deployed file predicted, with the labels that are known; -1 is unknown.

    `latency_ms`: queue and network, milliseconds; NaN where the log does not say. `chosen`: labels of rows that were
    picked for what they are, such as errors, and have no other label; no figure may be made of them. `scores`: (N, S)
    of the features, no columns where these are not watched. `cut`: so many logits of a row were kept, where not all
    were; the others are alike.
    """

    model: Model
    ids: tuple[str, ...]
    times: NDArray[np.float64]
    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    latency_ms: NDArray[np.float32]
    arrivals: Arrivals
    again: Again
    chosen: NDArray[np.int64]
    scores: NDArray[np.float32]
    cut: int | None = None

    @property
    def traffic(self) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
        """Times and logits of every answer, also of those under an id that had one, as they stand in the log."""
        again = self.again
        return np.insert(self.times, again.before, again.times), np.insert(self.logits, again.before, again.logits, 0)

    @property
    def traffic_scores(self) -> NDArray[np.float32]:
        """Of the same rows."""
        return np.insert(self.scores, self.again.before, self.again.scores, 0)

    def predictions(self) -> Predictions:
        """As a predictions file of the deployed logits: temperature and prior are applied already."""
        own = self.model
        model: dict[str, Any] = {"name": own.name, "version": own.version, "onnx_sha256": own.sha256}
        model["applied"] = "everything in the deployed file"
        if self.cut is not None:
            model[CUT] = self.cut
        return Predictions(self.ids, self.labels, self.logits, Source(self.model.classes, model=model))


@dataclass(frozen=True)
class Feedback:
    """A log, read and joined."""

    served: tuple[Served, ...]
    damaged_lines: int
    repeated_ids: int
    labels_without_prediction: tuple[str, ...]


@dataclass
class _Gathered:
    model: Model
    ids: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    ms: list[float | None] = field(default_factory=list)
    scores: list[tuple[int, NDArray[np.float32] | None]] = field(default_factory=list)  # of blocks of so many rows
    cut: int | None = None  # the fewest logits that were kept of a row


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
    chosen: dict[tuple[str, str], int] = {}
    for path in paths:
        for _, record in records(path, damage):
            if not _gather(record, gathered, labels, chosen):
                damage.lines += 1
    seen: set[tuple[str, str]] = set()
    repeated, served = 0, []
    for block in gathered.values():
        one, again = _join(block, labels, chosen, seen)
        served.append(one)
        repeated += again
    orphans = tuple(sorted(id_ for key in (labels.keys() | chosen.keys()) - seen for id_ in [key[1]]))
    return Feedback(tuple(served), damage.lines, repeated, orphans)


def _gather(
    record: dict[str, Any],
    gathered: dict[str, _Gathered],
    labels: dict[tuple[str, str], _Label],
    chosen: dict[tuple[str, str], int],
) -> bool:
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
        block.logits.append(decode(record, len(block.model.classes)))
        block.scores.append((len(record["ids"]), feedback_scores.decode(record)))
        if "top" in record:
            block.cut = record["top"] if block.cut is None else min(block.cut, record["top"])
    elif kind == LABELS:
        for id_, k in zip(record["ids"], record["labels"], strict=True):
            label = labels.setdefault((record["model"], id_), _Label(len(labels), k, k, record["time"]))
            label.last = k
    elif kind == CHOSEN:
        chosen.update(((record["model"], id_), k) for id_, k in zip(record["ids"], record["labels"], strict=True))
    return True


def _join(
    block: _Gathered,
    labels: dict[tuple[str, str], _Label],
    chosen: dict[tuple[str, str], int],
    seen: set[tuple[str, str]],
) -> tuple[Served, int]:
    keep: list[int] = []
    repeated: list[int] = []
    before: list[int] = []
    for row, id_ in enumerate(block.ids):
        key = (block.model.name, id_)
        if key not in seen:
            seen.add(key)
            keep.append(row)
        else:
            repeated.append(row)
            before.append(len(keep))
    classes = len(block.model.classes)
    logits = np.concatenate(block.logits) if block.logits else np.zeros((0, classes), np.float32)
    ids = tuple(block.ids[row] for row in keep)
    known = [labels.get((block.model.name, id_)) for id_ in ids]
    last = np.array([-1 if label is None else label.last for label in known], np.int64)
    picked = [-1 if label else chosen.get((block.model.name, id_), -1) for id_, label in zip(ids, known, strict=True)]
    took = np.array(block.ms, np.float32)  # None becomes NaN
    times = np.array(block.times, np.float64)
    scores = feedback_scores.joined(block.scores, _scores_watched(block.model))
    again = Again(np.array(before, np.int64), times[repeated], logits[repeated], scores[repeated])
    arrivals, other = _arrivals(known), np.array(picked, np.int64)
    served = Served(
        block.model,
        ids,
        times[keep],
        logits[keep],
        last,
        took[keep],
        arrivals,
        again,
        other,
        scores[keep],
        block.cut,
    )
    return served, len(repeated)


def _scores_watched(model: Model) -> int:
    """Of a row, by the last start of the server."""
    features = (model.watch or {}).get("features")
    return int(features["scores"]) if features else 0


def _arrivals(known: Sequence[_Label | None]) -> Arrivals:
    came = sorted(((label, row) for row, label in enumerate(known) if label is not None), key=lambda c: c[0].number)
    return Arrivals(
        np.array([row for _, row in came], np.int64),
        np.array([label.first for label, _ in came], np.int64),
        np.array([label.time for label, _ in came], np.float64),
    )
