"""What a predictions file claims, whether its rows have labels or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.formula import Formula, read_formula
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.bins import check_bins, equal_width_index
from calibrant.calibration.verdict.labels_needed import Claims
from calibrant.errors import DataError

_NUMBERS = 1 << 20  # logits read at a time


@dataclass(frozen=True)
class FileClaims:
    claims: Claims
    rows: int
    labelled: int


def claims_of_file(
    path: Path, calibrator: Path | None = None, *, bins: int = 15, asked: Asked | None = None
) -> FileClaims:
    """Through a calibrator, where one is given."""
    file = PredictionsFile.open(path, asked=asked)
    formula = Formula.of(None, file.source) if calibrator is None else read_formula(calibrator, file.source)
    rows, claimed, labelled = np.zeros(check_bins(bins)), np.zeros(bins), 0
    for batch in file.batches(max(1024, _NUMBERS // len(file.source.class_names)), features=formula.reads_features):
        confidence = softmax(formula.logits(batch.logits, batch.features)).max(axis=1)
        index = equal_width_index(confidence, bins)
        rows += np.bincount(index, minlength=bins)
        claimed += np.bincount(index, confidence, bins)
        labelled += len(batch.labelled())
    if not rows.any():
        raise DataError("has no rows", where=path)
    full = rows > 0
    return FileClaims(Claims(rows[full] / rows.sum(), claimed[full] / rows[full]), int(rows.sum()), labelled)
