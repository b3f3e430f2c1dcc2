"""Rows of a predictions file for what statistics cannot answer: all of them, or a fair sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.verdict.case import JudgedRows, Labels, Matrix

MOST_ROWS = 100_000
_NUMBERS, _BATCH = 5_000_000, 1 << 19


def sample(file: PredictionsFile, labelled: int, *, features: bool = False) -> JudgedRows:
    """`labelled`: how many rows of the file have a label. Up to 100,000 of them, at most 5,000,000 logits."""
    classes = len(file.source.class_names)
    most = min(MOST_ROWS, max(_NUMBERS // classes, 500))
    share = most / labelled
    rng = np.random.default_rng(0)
    logits, labels, seen, groups = [], [], [], dict[str, list[Any]]()
    for batch in file.batches(max(1024, _BATCH // classes), features=features):
        part = batch.labelled()
        chosen = np.arange(len(part)) if share >= 1 else np.flatnonzero(rng.random(len(part)) < share)
        logits.append(part.logits[chosen])
        labels.append(part.labels[chosen])
        if part.features is not None:
            seen.append(part.features[chosen])
        for column, values in part.groups.items():
            groups.setdefault(column, []).extend(values[i] for i in chosen)
    z: NDArray[np.floating] = np.concatenate(logits)
    y: Labels = np.concatenate(labels)
    plain: Matrix = z.astype(np.float64)
    whole = features and len(seen) == len(labels)
    return JudgedRows(plain, plain, y, labelled, groups=groups, features=np.concatenate(seen) if whole else None)
