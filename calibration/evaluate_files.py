"""Evaluates predictions files, each as it is and through calibrators: table, JSON and report are made from this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from numpy.typing import ArrayLike

from calibrant.artifacts.predictions import PredictionsFile, Source
from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.report.figures import Model
from calibrant.calibration.statistics.statistics import Statistics, for_file
from calibrant.errors import DataError
from calibrant.priors import UNIFORM, read_prior
from calibrant.shares import head_medium_tail


def evaluate_files(
    paths: Sequence[str | Path], calibrators: Sequence[str | Path] = (), *, bins: int = 15,
    target_prior: str | None = None, groups: Mapping[str, Sequence[int]] | None = None,
) -> list[Model]:  # fmt: skip
    """Each predictions file as it is, then through each calibrator. Groups: head, medium and tail unless given."""
    loaded = [(Path(c), Calibrator.load(c)) for c in calibrators]
    models = []
    for path in map(Path, paths):
        source = PredictionsFile.open(path).source
        prior = _target(target_prior, source)
        shown = groups if groups is not None else head_medium_tail(source.train_prior)
        for where, calibrator in ((None, None), *loaded):
            if calibrator is not None and calibrator.classes != len(source.class_names):
                raise DataError(
                    f"the calibrator has {calibrator.classes} classes, the predictions {len(source.class_names)}",
                    where=where, fix="was it fitted on another model?",
                )  # fmt: skip
            name = path.stem if where is None else f"{path.stem}, {where.stem}"
            models.append(_model(name, for_file(path, calibrator), source, bins, prior, shown))
    return models


def _target(target_prior: str | None, source: Source) -> ArrayLike | str | None:
    """Uniform stays a word: it is uniform over the classes that have rows."""
    if target_prior is None or target_prior.strip() == UNIFORM:
        return None if target_prior is None else UNIFORM
    return read_prior(target_prior, source.class_names, train=source.train_prior)


def _model(
    name: str, statistics: Statistics, source: Source, bins: int, prior: ArrayLike | str | None,
    groups: Mapping[str, Sequence[int]],
) -> Model:  # fmt: skip
    evaluation = evaluate(statistics, bins=bins, target_prior=prior, class_names=source.class_names, groups=groups)
    return Model(name, evaluation, statistics)
