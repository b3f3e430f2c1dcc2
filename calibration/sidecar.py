"""Statistics of a predictions file, in one pass over its batches."""

from __future__ import annotations

from pathlib import Path

from calibrant.calibration.accumulate import Accumulator
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.statistics import Statistics
from calibrant.errors import DataError
from calibrant.predictions import PredictionsFile
from calibrant.progress import progress

_BATCH_NUMBERS = 1 << 19  # logits read at a time


def statistics_for_file(path: Path, calibrator: Calibrator | None, *, cache: bool) -> Statistics:
    return compute(PredictionsFile.open(path), calibrator)


def compute(file: PredictionsFile, calibrator: Calibrator | None = None) -> Statistics:
    classes = len(file.source.class_names)
    accumulator = Accumulator(classes, rows_expected=file.rows)
    rows = max(1024, _BATCH_NUMBERS // classes)
    total = -(-file.rows // rows)
    found = 0
    for batch in progress(file.batches(rows), what=f"reading {file.path.name}", total=total, unit="batch"):
        part = batch.labelled()
        if len(part) == 0:
            continue
        found += len(part)
        accumulator.add(part.logits if calibrator is None else calibrator.logits(part.logits), part.labels)
    if found == 0:
        raise DataError(
            "no row has a label" if file.rows else "holds no rows", where=file.path,
            fix="evaluation and calibration need labelled predictions",
        )  # fmt: skip
    return accumulator.finish()
