"""Reads what `--baseline` names: labelled predictions that were held out in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.calibration.monitoring.baseline import Baseline, held_out_baseline
from calibrant.errors import DataError
from calibrant.serve.engine.deployed_formula import DeployedFormula

FEWEST_ROWS = 200


def read_baseline(path: Path, card: ModelCard) -> Baseline:
    """A calibrator that is no diagonal map cannot be redone here: then the rows must be those that `calibrant predict`
    wrote with the deployed file, calibrated already."""
    rows = read_predictions(path).labelled()
    if rows.class_names != card.classes:
        raise DataError("has other classes than the model", where=path, fix="give predictions of this model")
    known, given = card.source.get("checkpoint_sha256"), rows.source.model.get("sha256")
    if known and given and known != given:
        raise DataError("holds predictions of another network than the model's", where=path)
    if len(rows) < FEWEST_ROWS:
        raise DataError(f"has {len(rows)} rows with labels; a baseline needs {FEWEST_ROWS}", where=path)
    redo = DeployedFormula.of(card)
    return held_out_baseline(_calibrated(rows, redo, path), rows.labels, term=redo.term, prior=card.prior)


def _calibrated(rows: Predictions, redo: DeployedFormula, path: Path) -> NDArray[np.float64]:
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
