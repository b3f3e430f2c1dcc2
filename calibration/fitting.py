"""Fitting and evaluating predictions files: what the commands, the demo and the dashboard call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.accumulate import statistics_of
from calibrant.calibration.calibrators import Calibrator, fit
from calibrant.calibration.evaluation import Evaluation, evaluate
from calibrant.calibration.report.figures import Model
from calibrant.calibration.statistics import Statistics, for_file
from calibrant.errors import ConfigError, DataError, FormatError
from calibrant.predictions import PredictionsFile, Source

_REPORTED = (
    "accuracy", "balanced_accuracy", "nll", "brier", "ece", "over_ece", "under_ece", "adaptive_ece", "classwise_ece",
)  # fmt: skip


def fit_file(path: str | Path, method: str = "temperature", *, bins: int = 15, **options: Any) -> Calibrator:
    """Fits on the labelled rows of a predictions file and records what they were and what it brought.

    The numbers after calibration are cross-fitted: each row is judged by a map that was fitted on other rows.
    """
    file = PredictionsFile.open(path)
    data = file.read().labelled()
    if len(data) == 0:
        raise DataError("no row has a label", where=path, fix="calibration needs labelled predictions")
    calibrator = fit(method, data.logits, data.labels, **options)
    before = evaluate(statistics_of(data.logits, data.labels), bins=bins)
    held_out = cross_fitted(method, data.logits, data.labels, **options)
    after = evaluate(statistics_of(held_out, data.labels), bins=bins)
    return calibrator.with_context(
        fitted_on={
            "path": Path(path).name, "sha256": file.sha256(), "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "model": dict(file.source.model),
        },
        metrics={"before": reported(before), "after": reported(after), "after_is": "cross-fitted", "bins": bins},
    )  # fmt: skip


def cross_fitted(
    method: str, logits: NDArray[Any], labels: NDArray[np.int64], *, folds: int | None = None, seed: int = 0,
    **options: Any,
) -> NDArray[np.float64]:  # fmt: skip
    """Calibrated logits of each row, by a calibrator fitted on the other folds."""
    n = len(labels)
    folds = min(folds or (5 if n <= 200_000 else 2), n)
    if folds < 2:
        return fit(method, logits, labels, **options).logits(logits)
    fold = np.random.default_rng(seed).permutation(n) % folds
    out = np.empty(logits.shape, np.float64)
    for f in range(folds):
        test = fold == f
        out[test] = fit(method, logits[~test], labels[~test], **options).logits(logits[test])
    return out


def reported(evaluation: Evaluation) -> dict[str, dict[str, float | None]]:
    return {key: evaluation.metrics[key].to_dict() for key in _REPORTED if key in evaluation.metrics}


def evaluate_files(
    paths: Sequence[str | Path], calibrators: Sequence[str | Path] = (), *, bins: int = 15,
    target_prior: str | None = None, groups: dict[str, Sequence[int]] | None = None,
) -> list[Model]:  # fmt: skip
    """Each predictions file as it is, then through each calibrator."""
    loaded = [(Path(c), Calibrator.load(c)) for c in calibrators]
    models = []
    for path in map(Path, paths):
        source = PredictionsFile.open(path).source
        prior = read_prior(target_prior, source) if target_prior is not None else None
        for where, calibrator in ((None, None), *loaded):
            if calibrator is not None and calibrator.classes != len(source.class_names):
                raise DataError(
                    f"the calibrator has {calibrator.classes} classes, the predictions {len(source.class_names)}",
                    where=where, fix="was it fitted on another model?",
                )  # fmt: skip
            statistics = for_file(path, calibrator)
            name = path.stem if where is None else f"{path.stem}, {where.stem}"
            models.append(_model(name, statistics, source, bins, prior, groups))
    return models


def _model(
    name: str, statistics: Statistics, source: Source, bins: int, prior: Any, groups: dict[str, Sequence[int]] | None
) -> Model:
    evaluation = evaluate(statistics, bins=bins, target_prior=prior, class_names=source.class_names, groups=groups)
    return Model(name, evaluation, statistics)


def read_prior(text: str, source: Source) -> Any:
    """ "uniform", or the shares of a JSON file: a list in order of classes, or an object by class name."""
    if text == "uniform":
        return text
    path = Path(text)
    try:
        block = json.loads(path.read_bytes())
    except OSError:
        raise ConfigError(f'target prior "{text}" is neither "uniform" nor a file that can be read') from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"not JSON ({error})", where=path) from None
    if isinstance(block, dict):
        missing = [n for n in source.class_names if n not in block]
        if missing:
            raise FormatError(f'no share for class "{missing[0]}"', where=path, fix="give one for each class")
        block = [block[n] for n in source.class_names]
    if not isinstance(block, list) or len(block) != len(source.class_names):
        raise FormatError(f"expected {len(source.class_names)} shares, one for each class", where=path)
    try:
        return np.asarray(block, np.float64)
    except (TypeError, ValueError):
        raise FormatError("the shares are not numbers", where=path) from None
