"""What counts as normal: `--baseline`, labelled predictions held out in training; and what the alarms are set to."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import Predictions, read_predictions
from calibrant.calibration.monitoring.alarms import Watch
from calibrant.calibration.monitoring.baseline import KnownRows
from calibrant.calibration.monitoring.calibration_alarm import CalibrationSettings
from calibrant.calibration.monitoring.drift_alarm import DriftSettings
from calibrant.errors import DataError
from calibrant.serve.engine.deployed_formula import DeployedFormula
from calibrant.serve.monitor.config import MonitorConfig
from calibrant.serve.monitor.features import ServedFeatures

log = logging.getLogger(__name__)


def watch_of(config: MonitorConfig, given: KnownRows | None, features: ServedFeatures | None = None) -> Watch:
    """From now on. To the millisecond below, as predictions are logged."""
    return Watch.given(
        math.floor(time.time() * 1e3) / 1e3,
        CalibrationSettings(alpha=config.alpha, horizon=config.horizon),
        DriftSettings(alpha=config.alpha),
        given,
        config.window,
        None if features is None else features.watch,
    )


def read_baseline(path: Path, card: ModelCard) -> KnownRows:
    """A calibrator that is no diagonal map cannot be redone here: then the rows must be those that `calibrant predict`
    wrote with the deployed file, calibrated already."""
    rows = read_predictions(path).labelled()
    refuse_cut(rows.source.model, path, "a baseline")
    if rows.class_names != card.classes:
        raise DataError("has other classes than the model", where=path, fix="give predictions of this model")
    known, given = card.source.get("checkpoint_sha256"), rows.source.model.get("sha256")
    if known and given and known != given:
        raise DataError("holds predictions of another network than the model's", where=path)
    if not len(rows):
        raise DataError("has no row with a label, so it is no baseline", where=path)
    if (remark := _remark(len(rows), len(card.classes))) is not None:
        log.warning("%s: %s", path, remark)
    redo = DeployedFormula.of(card)
    return KnownRows.held_out(_calibrated(rows, redo, path), rows.labels, term=redo.term, prior=card.prior)


def _remark(rows: int, classes: int) -> str | None:
    settings = CalibrationSettings()
    fewest, full = settings.fewest_rows(classes), settings.full_rows(classes)
    if rows < fewest:
        return (
            f"{rows:,} labelled rows are no baseline for {classes:,} classes, which takes {fewest:,}; "
            "they are the beginning of one that is learned from the labels that come"
        )
    if rows < full:
        return f"with {rows:,} labelled rows the calibration alarm is slower than with {full:,} for {classes:,} classes"
    return None


def _calibrated(rows: Predictions, redo: DeployedFormula, path: Path) -> NDArray[np.float64]:
    """(N, C) logits as the file has them before its prior correction."""
    logits = rows.logits.astype(np.float64)
    applied = rows.source.model.get("applied")
    if isinstance(applied, str):  # a feedback log holds what was answered
        return redo.calibrated(logits)
    if applied:
        return logits
    if redo.scale is None:
        raise DataError(
            f"holds the network's own logits, and the calibrator of the model ({redo.calibrator}) is not applied here",
            where=path,
            fix="write them with the deployed file: calibrant predict MODEL.onnx --data ...",
        )
    return redo.scale * logits + redo.shift
