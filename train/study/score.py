"""What a finished training says on its test set: as it is, and through calibrators fitted on its validation rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.atomic import write_json
from calibrant.calibration.calibrators import fit
from calibrant.calibration.metrics.ood import ood_detection
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.softmax import softmax
from calibrant.train.heads.scores import METRICS as OF_HEADS
from calibrant.train.heads.scores import measure
from calibrant.train.jobs.rows import pack_rows
from calibrant.train.jobs.training import TrainJob

AS_TRAINED = ""  # the view without a calibrator
# Raised by hand when a metric or a calibrator gives other numbers than before: scores are then made again.
SCORES_VERSION = 3
_AUROC = "auroc_"
KNOWN = {**OF_HEADS, **{m.key: m.better == "higher" for m in METRICS}}  # True: higher is better


@dataclass(frozen=True)
class Score:
    """Of one run through one view: its metrics on the test set, and what it keeps of every test row."""

    metrics: dict[str, float]
    rows: dict[str, Any]


def auroc_key(name: str) -> str:
    """The metric that tells how well confidence tells these foreign images."""
    return f"{_AUROC}{name}"


def higher_is_better(metric: str) -> bool:
    return metric.startswith(_AUROC) or KNOWN[metric]


def score(
    out: Path, job: TrainJob, view: str, metrics: Sequence[str], foreign: Mapping[str, Path] | None = None
) -> Score:
    """From the run's predictions, once; later calls read what was found. foreign: places of images of other things."""
    foreign = foreign or {}
    file = out / "scores" / f"{job.key[:16]}-{view or 'as-trained'}.json"
    try:
        block = json.loads(file.read_text())
        wanted = {*metrics, *(auroc_key(name) for name in foreign)}
        if block["version"] == SCORES_VERSION and wanted <= set(block["metrics"]):
            return Score(block["metrics"], block["rows"])
    except (OSError, ValueError, KeyError):
        pass
    folder = out / job.folder / "predictions"
    test = read_predictions(folder / "test.parquet")
    val = read_predictions(folder / "val.parquet")
    probs = probabilities(view, val.logits, val.labels, test.logits)
    counts = _counts(test)
    told = values(probs, test.labels, counts, metrics)
    for name, place in foreign.items():
        others = probabilities(view, val.logits, val.labels, _of_foreign(out, job, name, place).logits)
        told[auroc_key(name)] = ood_detection(probs.max(1), others.max(1)).auroc
    found = Score(told, pack_rows(probs, test.labels, counts, None))
    write_json(file, {"version": SCORES_VERSION, "metrics": found.metrics, "rows": found.rows})
    return found


def _of_foreign(out: Path, job: TrainJob, name: str, place: Path) -> Predictions:
    """The run's predictions for foreign images, made once."""
    file = out / "foreign" / f"{job.key[:16]}-{name}.parquet"
    if not file.is_file():
        from calibrant.train.predict import predict_run

        file.parent.mkdir(parents=True, exist_ok=True)
        predict_run(out / job.folder, place, file, batch_size=256, device="cpu")
    return read_predictions(file)


def probabilities(
    view: str, held_out: NDArray[np.floating[Any]], labels: NDArray[np.int64], logits: NDArray[np.floating[Any]]
) -> NDArray[np.float64]:
    """(N, C) of the rows of `logits`, through a calibrator that has seen held-out logits and their labels alone."""
    if view == AS_TRAINED:
        return softmax(logits)
    return fit(view, held_out, labels).probabilities(logits)


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


def norms_of(file: Path) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """L1 norm of the features, largest probability and whether the prediction was right, of every row; None where
    the file keeps no features.
    """
    rows = read_predictions(file, features=True)
    if rows.features is None:
        return None
    probs = softmax(rows.logits)
    norm = np.abs(rows.features.astype(np.float64)).sum(1)
    return norm, probs.max(1), (probs.argmax(1) == rows.labels).astype(np.float64)


def smoothing_of(loss: Mapping[str, Any]) -> tuple[float, float] | None:
    """A and beta of a FeDLaS loss, from the [loss] table of a run; None of any other."""
    from calibrant.train.losses import create_loss
    from calibrant.train.losses.fedlas import FeDLaSLS, FeDLaSMbLS

    if not loss["name"].startswith("fedlas"):
        return None
    made = create_loss(loss["name"], num_classes=2, feature_dim=1, **loss["options"])
    assert isinstance(made, FeDLaSLS | FeDLaSMbLS)
    return made.alpha, made.beta
