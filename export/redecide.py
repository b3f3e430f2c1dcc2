"""Sets and threshold of a deployed file, fitted again for the prior that it corrects to now."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.model_card import ModelCard
from calibrant.artifacts.predictions import PredictionsFile
from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.conformal.holding import sets_moved
from calibrant.errors import DataError
from calibrant.export.graph.assemble import calibrator_of

log = logging.getLogger(__name__)


def warn_of_moved_sets(card: ModelCard) -> None:
    """Sets that were fitted for another prior stay in the file, and nobody gets them."""
    if sets_moved(card):
        log.warning(
            "the prediction sets were fitted for another class prior than the file corrects to, and none are given; "
            "calibrant adjust FILE --labelled VAL.parquet fits them again"
        )


def redecide(card: ModelCard, labelled: str | Path) -> ModelCard:
    """The card with its calibrator's sets and threshold fitted again on labelled predictions, for its own prior.

    Rows weigh target share / own share of their class. Those that the map was fitted on are judged by maps that were
    fitted on the others.
    """
    from calibrant.calibration.decisions import wanted_of, with_decisions
    from calibrant.calibration.softmax import softmax

    calibrator = calibrator_of(card)
    wanted = None if calibrator is None else wanted_of(calibrator)
    if calibrator is None or wanted is None:
        return card
    u, labels = _calibrated(card, calibrator, Path(labelled))
    shift, target = card.prior.shift(), None
    if shift is not None:
        target = np.ones(len(card.classes)) if card.prior.target is None else np.asarray(card.prior.target)
        u = u - shift
    found = with_decisions(calibrator, softmax(u), labels, wanted, target_prior=target, shift=shift)
    log.warning("the calibrator's prediction sets and threshold were fitted again on %s", Path(labelled).name)
    own = card.calibrator or {}
    new = {key: found.to_dict()[key] for key in ("conformal", "abstain", "fitted_on")}
    return replace(card, calibrator={**own, **new})


def _calibrated(card: ModelCard, calibrator: Calibrator, path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Calibrated logits of the labelled rows, by maps that have not seen them."""
    from calibrant.calibration.cross_fit import as_fitted, cross_fitted
    from calibrant.calibration.fitting import rows_sha256

    file = PredictionsFile.open(path)
    if tuple(file.source.class_names) != tuple(card.classes):
        raise DataError("has other classes than the model", where=path, fix="predict with this model")
    data = file.read(features=calibrator.reads_features).labelled()
    if len(data) == 0:
        raise DataError("no row has a label", where=path, fix="sets and thresholds need labelled predictions")
    refuse_cut(file.source.model, path, "fitting prediction sets")
    known = calibrator.fitted_on.get("rows_sha256")
    if known is None or known != rows_sha256(data.logits, data.labels):
        return calibrator.logits(data.logits, data.features), data.labels
    settings, weights = as_fitted(calibrator, data.labels, path)
    if calibrator.reads_features:
        settings["features"] = data.features
    u = cross_fitted(calibrator.method, data.logits, data.labels, weights=weights, chosen=calibrator, **settings)
    return u, data.labels
