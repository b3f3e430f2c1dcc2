"""Served rows that may still get their label: the newest in memory, older ones where the log holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts import feedback
from calibrant.artifacts.feedback_logits import decode
from calibrant.artifacts.feedback_records import record_at
from calibrant.calibration.monitoring.alarms import served_log_p
from calibrant.serve.monitor.log_index import Index

RECENT_BYTES = 16 << 20  # of rows kept for labels that come soon


@dataclass
class ServedRow:
    """Without figures if another file of the model served it."""

    log_p: NDArray[np.float32] | None


class ServedRows:
    def __init__(self, model: feedback.Model) -> None:
        self._model = model
        self._recent: dict[str, ServedRow] = {}
        self._most_recent = max(100, min(20_000, RECENT_BYTES // (4 * len(model.classes))))
        self._index = Index()

    def logged(self, path: Path, offset: int, ids: Sequence[str]) -> None:
        """Tells where the log holds rows."""
        self._index.add(path, offset, ids)

    def add(self, ids: Sequence[str], log_p: NDArray[np.float64]) -> None:
        for id_, row in zip(ids, log_p.astype(np.float32), strict=True):
            if id_ not in self._recent:
                self._recent[id_] = ServedRow(row)
        while len(self._recent) > self._most_recent:
            self._recent.pop(next(iter(self._recent)))

    def forget_recent(self) -> None:
        """What is in memory; the log is looked up from now on."""
        self._recent.clear()

    def find(self, id_: str) -> ServedRow | None:
        if (recent := self._recent.get(id_)) is not None:
            return recent
        at_places = (record_at(*place) for place in self._index.places(id_))
        record = next((found for found in at_places if found is not None and id_ in found["ids"]), None)
        if record is None:
            return None
        if record["sha256"] != self._model.sha256:
            return ServedRow(None)
        logits = decode(record, len(self._model.classes))[record["ids"].index(id_)]
        return ServedRow(served_log_p(logits[None])[0].astype(np.float32))
