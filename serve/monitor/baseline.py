"""What calibration counts as normal for a deployed file, from labelled predictions that were held out in training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.calibration.monitoring.watch import Array, Baseline
from calibrant.errors import DataError
from calibrant.serve.engine.deployed_formula import DeployedFormula

FEWEST_ROWS = 200


def baseline_of(path: Path, card: ModelCard) -> Baseline:
    """Of the probabilities with which the file would answer these rows, where its classes are spread as it assumes.

    A calibrator that is no diagonal map cannot be redone here: then the rows must be those that `calibrant predict`
    wrote with the deployed file, calibrated already.
    """
    rows = read_predictions(path).labelled()
    if rows.class_names != card.classes:
        raise DataError("has other classes than the model", where=path, fix="give predictions of this model")
    known, given = card.source.get("checkpoint_sha256"), rows.source.model.get("sha256")
    if known and given and known != given:
        raise DataError("holds predictions of another network than the model's", where=path)
    if len(rows) < FEWEST_ROWS:
        raise DataError(f"has {len(rows)} rows with labels; a baseline needs {FEWEST_ROWS}", where=path)
    redo = DeployedFormula.of(card)
    calibrated = _calibrated(rows, redo, path)
    if not _follow_training(rows, card):
        return Baseline.fit(_log_softmax(calibrated - redo.term), rows.labels)
    # The file corrects its answers for another prior than these rows have: fitted without the correction, the baseline
    # b u + c is b (u - term) + c + (b - 1) term with it.
    found = Baseline.fit(_log_softmax(calibrated), rows.labels)
    return replace(found, bias=found.bias + (found.sharpness - 1) * redo.term)


def _follow_training(rows: Predictions, card: ModelCard) -> bool:
    """Whether the labels are spread as the training set's were, rather than as those that the file is meant for."""
    train = card.prior.train
    if train is None:
        return False
    classes = len(card.classes)
    target = np.full(classes, 1 / classes) if card.prior.target is None else np.asarray(card.prior.target)
    counts = np.bincount(rows.labels, minlength=classes)
    floor = 1e-12
    return bool((counts * (np.log(np.maximum(train, floor)) - np.log(np.maximum(target, floor)))).sum() >= 0)


def _log_softmax(logits: Array) -> Array:
    z = logits - logits.max(axis=1, keepdims=True)
    log_p: Array = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return log_p


def _calibrated(rows: Predictions, redo: DeployedFormula, path: Path) -> Array:
    """(N, C) logits as the file has them before its prior correction."""
    logits = rows.logits.astype(np.float64)
    if rows.source.model.get("applied"):
        return logits
    if redo.scale is None:
        raise DataError(
            f"holds the network's own logits, and the calibrator of the model ({redo.calibrator}) is not applied here",
            where=path, fix="write them with the deployed file: calibrant predict MODEL.onnx --data ...",
        )  # fmt: skip
    return redo.scale * logits + redo.shift
