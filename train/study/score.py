"""What a finished training says on its test set: as it is, and through calibrators fitted on its validation rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.atomic import write_json
from calibrant.calibration.calibrators import fit
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.softmax import softmax
from calibrant.train.heads.scores import METRICS as OF_HEADS
from calibrant.train.heads.scores import measure
from calibrant.train.jobs.rows import pack_rows
from calibrant.train.jobs.training import TrainJob

AS_TRAINED = ""  # the view without a calibrator
# Raised by hand when a metric or a calibrator gives other numbers than before: scores are then made again.
SCORES_VERSION = 1
KNOWN = {**OF_HEADS, **{m.key: m.better == "higher" for m in METRICS}}  # True: higher is better


@dataclass(frozen=True)
class Score:
    """Of one run through one view: its metrics on the test set, and what it keeps of every test row."""

    metrics: dict[str, float]
    rows: dict[str, Any]


def score(out: Path, job: TrainJob, view: str, metrics: Sequence[str]) -> Score:
    """From the run's predictions, once; later calls read what was found."""
    file = out / "scores" / f"{job.key[:16]}-{view or 'as-trained'}.json"
    try:
        block = json.loads(file.read_text())
        if block["version"] == SCORES_VERSION and set(metrics) <= set(block["metrics"]):
            return Score(block["metrics"], block["rows"])
    except (OSError, ValueError, KeyError):
        pass
    folder = out / job.folder / "predictions"
    test = read_predictions(folder / "test.parquet")
    probs = probabilities(read_predictions(folder / "val.parquet"), test, view)
    counts = _counts(test)
    found = Score(values(probs, test.labels, counts, metrics), pack_rows(probs, test.labels, counts, None))
    write_json(file, {"version": SCORES_VERSION, "metrics": found.metrics, "rows": found.rows})
    return found


def probabilities(val: Predictions, test: Predictions, view: str) -> NDArray[np.float64]:
    """(N, C) of the test rows, through a calibrator that has seen the validation rows alone."""
    if view == AS_TRAINED:
        return softmax(test.logits)
    return fit(view, val.logits, val.labels).probabilities(test.logits)


def values(
    probs: NDArray[np.float64], labels: NDArray[np.int64], counts: NDArray[np.int64], metrics: Sequence[str]
) -> dict[str, float]:
    by_key = {m.key: m for m in METRICS}
    others = {} if set(metrics) <= set(by_key) else measure(probs, labels, counts)
    return {key: float(by_key[key].function(probs, labels)) if key in by_key else others[key] for key in metrics}


def _counts(data: Predictions) -> NDArray[np.int64]:
    """Training images of each class, up to a factor: what is rare is told by them."""
    prior = data.source.train_prior
    share = np.full(len(data.class_names), 1.0) if prior is None else np.asarray(prior)
    return np.round(1e6 * share).astype(np.int64)
