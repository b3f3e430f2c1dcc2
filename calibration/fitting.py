"""Fits a calibrator on a predictions file: what the command, the demo and the dashboard call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import PredictionsFile, Source
from calibrant.calibration.calibrators import Calibrator, fit
from calibrant.calibration.decisions import Decisions, with_decisions
from calibrant.calibration.evaluation import Evaluation, evaluate
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.errors import ConfigError, DataError
from calibrant.priors import UNIFORM, read_prior
from calibrant.shares import class_weights, log_prior_ratio


def fit_file(
    path: str | Path, method: str = "temperature", *, bins: int = 15, target_prior: str | None = None,
    adjust: float | None = None, decisions: Decisions | None = None, options: Mapping[str, Any] | None = None,
) -> Calibrator:  # fmt: skip
    """Fits on the labelled rows of a predictions file and records what they were and what it brought.

    `target_prior` alone weights the rows to that prior. With `adjust` the rows are taken to follow the target prior
    already, and the map is fitted inside the deployed formula with that total strength, as `export --adjust` means it:
    the training prior, and the strength that the loss has absorbed, stand in the file. The numbers after calibration,
    prediction sets and abstain thresholds are cross-fitted: each row is judged by a map that was fitted on other rows.
    """
    file = PredictionsFile.open(path)
    data = file.read().labelled()
    if len(data) == 0:
        raise DataError("no row has a label", where=path, fix="calibration needs labelled predictions")
    z, y = data.logits, data.labels
    settings: dict[str, Any] = dict(options or {})
    weights, shift, by_class = None, np.zeros(z.shape[1]), None
    if adjust is not None:
        ratio, absorbed = _ratio(file.source, target_prior, Path(path)), file.source.absorbed
        strength = adjust
        if absorbed:  # towards the uniform prior, by the loss
            ratio, strength = adjust * ratio - absorbed * _ratio(file.source, None, Path(path)), 1.0
        shift = strength * ratio
        if shift.any():
            settings |= {"log_prior_ratio": ratio, "strength": strength}
    elif target_prior is not None:
        rows = np.bincount(y, minlength=z.shape[1])
        even = target_prior.strip() == UNIFORM  # over the classes that have rows
        by_class = class_weights(rows, rows > 0 if even else _shares(target_prior, file.source))
        weights = by_class[y]
    calibrator = fit(method, z, y, weights=weights, **settings)
    held_out = cross_fitted(method, z, y, weights=weights, chosen=calibrator, **settings) - shift
    before, after = (evaluate(statistics_of(u, y).weighted(by_class), bins=bins) for u in (z - shift, held_out))
    context: dict[str, Any] = {
        "path": Path(path).name, "sha256": file.sha256(), "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "model": dict(file.source.model),
    }  # fmt: skip
    if target_prior is not None:
        context["target_prior"] = target_prior if target_prior == "uniform" else Path(target_prior).name
    calibrator = calibrator.with_context(
        fitted_on=context,
        metrics={"before": reported(before), "after": reported(after), "after_is": "cross-fitted", "bins": bins},
    )
    return calibrator if decisions is None else with_decisions(calibrator, softmax(held_out), y, decisions)


def _ratio(source: Source, target_prior: str | None, where: Path) -> NDArray[np.float64]:
    if source.train_prior is None:
        raise ConfigError("the predictions do not say the training prior, which --adjust needs", where=where)
    target = None if target_prior is None else _shares(target_prior, source)
    return log_prior_ratio(source.train_prior, target, class_names=source.class_names)


def _shares(target_prior: str, source: Source) -> NDArray[np.float64]:
    return read_prior(target_prior, source.class_names, train=source.train_prior)


def cross_fitted(
    method: str, logits: NDArray[Any], labels: NDArray[np.int64], *, weights: NDArray[np.float64] | None = None,
    folds: int | None = None, seed: int = 0, chosen: Calibrator | None = None, **options: Any,
) -> NDArray[np.float64]:  # fmt: skip
    """Calibrated logits of each row, by a calibrator fitted on the other folds.

    Under "auto" the folds take the method that was chosen on all rows.
    """
    if method == "auto" and chosen is not None:
        method = chosen.method
        options = {k: v for k, v in options.items() if k in ("log_prior_ratio", "strength")}
    n = len(labels)
    folds = min(folds or (5 if n <= 200_000 else 2), n)
    if folds < 2:
        return (chosen or fit(method, logits, labels, weights=weights, **options)).logits(logits)
    fold = np.random.default_rng(seed).permutation(n) % folds
    out = np.empty(logits.shape, np.float64)
    for f in range(folds):
        test, train = fold == f, fold != f
        w = None if weights is None else weights[train]
        out[test] = fit(method, logits[train], labels[train], weights=w, **options).logits(logits[test])
    return out


def reported(evaluation: Evaluation) -> dict[str, dict[str, float | None]]:
    return {m.key: evaluation.metrics[m.key].to_dict() for m in METRICS if m.stored and m.key in evaluation.metrics}
