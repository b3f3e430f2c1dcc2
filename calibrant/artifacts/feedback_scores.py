"""The scores of features in a feedback log: a few numbers a row (`calibration.monitoring.feature_scores`), not the
features themselves. float32, base64 in a line and a list in a table; NaN in rows that have none."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIELD = "feature_scores"
Scores = NDArray[np.float32]


def encode(scores: Scores | None) -> dict[str, Any]:
    """The field of a record; none where no row has scores. scores: (rows, S)."""
    if scores is None or np.isnan(scores).all():
        return {}
    return {FIELD: base64.b64encode(np.ascontiguousarray(scores, "<f4").tobytes()).decode()}


def flat(record: Mapping[str, Any]) -> Scores | None:
    """Of a line or of a table."""
    found = record.get(FIELD)
    if found is None or not len(found):
        return None
    return np.frombuffer(base64.b64decode(found), "<f4") if isinstance(found, str) else np.asarray(found, np.float32)


def decode(record: Mapping[str, Any]) -> Scores | None:
    """(rows, S)"""
    found, rows = flat(record), len(record["ids"])
    return None if found is None or not rows else found.reshape(rows, -1)


def joined(blocks: Sequence[tuple[int, Scores | None]], width: int) -> Scores:
    """(rows, width) of blocks of so many rows each; NaN where there are none, or of another width."""
    own = [np.full((n, width), np.nan, np.float32) if s is None or s.shape[1] != width else s for n, s in blocks]
    return np.concatenate(own) if own else np.zeros((0, width), np.float32)
