"""Where a label goes: to every file of the model that answered under its id, once, and to the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_logits import decode
from calibrant.artifacts.feedback_records import record_at
from calibrant.calibration.monitoring.alarms import served_log_p
from calibrant.serve.monitor.labels import Labels, Reply
from calibrant.serve.monitor.log.history import History

if TYPE_CHECKING:
    from calibrant.serve.monitor.monitor import Monitor


@dataclass(frozen=True)
class _Answered:
    """Who answered under an id, with the log-probabilities that were served. Nobody, where the file is an older one."""

    rows: tuple[tuple[Monitor, NDArray[np.float32]], ...]


def take_labels(monitors: Sequence[Monitor], given: Labels, version: str | None = None) -> Reply:
    """`monitors`: of the files of one model that have the same classes. `version`: whose answers the labels must be
    of; any, unless given.

    The same label again changes nothing; another one replaces the first in the log and in the windows. An alarm goes
    by what was said first.
    """
    history, reply = monitors[0].history, Reply()
    for monitor in monitors:
        monitor.flush()
    with history.lock:
        taken: dict[str, int] = {}
        fresh: dict[str, _Answered] = {}
        set_aside: dict[str, int] = {}
        for id_, label in zip(given.ids, given.labels, strict=True):
            into, known = taken, taken.get(id_, history.known.get(id_))
            if known is None and given.chosen:
                into, known = set_aside, set_aside.get(id_, history.chosen.get(id_))
            found = None if known is not None and version is None else _find(monitors, id_, version)
            if known == label and (version is None or found is not None):
                reply.note(id_, "repeated")
            elif found is None and (known is None or version is not None):
                reply.note(id_, "unknown")
            else:
                reply.note(id_, "accepted" if known is None else "changed")
                if known is None and found is not None:
                    fresh[id_] = found
                into[id_] = label
        # First the log: what it cannot keep must not count, or the caller's second try would be a repetition.
        _write(monitors, taken, chosen=False)
        _write(monitors, set_aside, chosen=True)
        history.chosen.update(set_aside)
        history.known.update(taken)
        for id_ in taken:
            history.chosen.discard(id_)
        for id_, label in taken.items():
            if id_ in fresh:
                for monitor, row in fresh[id_].rows:
                    monitor.take(id_, row, label)
            else:
                _correct(monitors, id_, label)
    return reply


def _write(monitors: Sequence[Monitor], labels: Mapping[str, int], *, chosen: bool) -> None:
    output = next((m.output for m in monitors if m.output is not None), None)
    if output is not None and labels:
        output.labels(list(labels), list(labels.values()), chosen=chosen)


def _correct(monitors: Sequence[Monitor], id_: str, label: int) -> None:
    held = [m for m in monitors if m.window.holds(id_)]
    found = _find(held, id_, None) if held else None
    for monitor, row in () if found is None else found.rows:
        monitor.correct(id_, row, label)


def _find(monitors: Sequence[Monitor], id_: str, version: str | None) -> _Answered | None:
    """The first answer of each file under the id; None if there is none. The newest rows are in memory."""
    rows = {m: row for m in monitors if (row := m.recent(id_)) is not None}
    history, older = monitors[0].history, False
    places = [] if len(rows) == len(monitors) else history.places(id_)
    for place in places if len(places) > len(rows) else ():
        record = record_at(*place)
        if record is None or id_ not in record["ids"]:
            continue
        monitor = monitor_of(monitors, record)
        if monitor is None:
            older = older or _may_take(history, record, monitors[0].model.classes, version)
        elif monitor not in rows:
            logits = decode(record, len(monitor.model.classes))[record["ids"].index(id_)]
            rows[monitor] = served_log_p(logits[None])[0].astype(np.float32)
    if older or any(version in (None, m.model.version) for m in rows):
        return _Answered(tuple(rows.items()))
    return None


def _may_take(history: History, record: Mapping[str, Any], classes: tuple[str, ...], version: str | None) -> bool:
    """Whether an answer of a file that is watched no more takes a label, which then stands in the log alone."""
    answered = record.get("version")  # which older logs do not say
    return history.classes_of(record["sha256"]) == classes and (None in (version, answered) or version == answered)


def monitor_of(monitors: Sequence[Monitor], record: Mapping[str, Any]) -> Monitor | None:
    """Of the file that predicted a record; the same file may be there as several versions."""
    same = [m for m in monitors if m.model.sha256 == record["sha256"]]
    return next((m for m in same if m.model.version == record.get("version")), same[0] if same else None)
