"""Predictions files of independent labels, evaluated and calibrated: what the commands do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Predictions, PredictionsFile
from calibrant.artifacts.predictions.file import shards_of
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.independent.fit import fit_labels
from calibrant.calibration.independent.measure import LabelsEvaluation, measure_labels
from calibrant.calibration.subjects import file_names, names_apart
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.errors import CalibrantError, ConfigError, DataError


@dataclass(frozen=True)
class LabelsModel:
    """A file as it is, or through a calibrator; `in_sample`: that was fitted on these very rows."""

    name: str
    evaluation: LabelsEvaluation
    in_sample: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "in_sample": self.in_sample, **self.evaluation.to_dict()}


def is_independent(path: Path, asked: Asked | None) -> bool:
    """Does the file hold independent labels? What cannot be read is left to those who read it."""
    if asked is not None and asked.outcome is not None:
        return asked.outcome == "independent"
    if not path.exists() or not shards_of(path):
        return False
    try:
        return PredictionsFile.open(path, asked=asked, independent=True).source.independent
    except CalibrantError:
        return False


def evaluate_labels(
    paths: Sequence[Path],
    calibrators: Sequence[Path] = (),
    *,
    bins: int = 15,
    asked: Asked | None = None,
    margin: float = MARGIN,
) -> list[LabelsModel]:
    found, maps = [], names_apart(calibrators)
    for path, file_name in zip(paths, file_names(paths), strict=True):
        file = _independent(PredictionsFile.open(path, asked=asked, independent=True))
        found.append(judge_labels(file, name=file_name, bins=bins, margin=margin))
        found += [
            judge_labels(file, c, name=f"{file_name}, {label}", bins=bins, margin=margin)
            for c, label in zip(calibrators, maps, strict=True)
        ]
    return found


def judge_labels(
    file: PredictionsFile,
    calibrator: Calibrator | str | Path | None = None,
    *,
    name: str,
    bins: int = 15,
    margin: float = MARGIN,
) -> LabelsModel:
    """Label by label, as the rows are or through a calibrator."""
    data = _known(file)
    found = None if calibrator is None else labels_calibrator(calibrator, data)
    logits = data.logits if found is None else found.logits(data.logits)
    assert data.present is not None  # of independent labels
    measured = measure_labels(logits, data.present, data.class_names, bins=bins, weights=data.weights, margin=margin)
    return LabelsModel(name, measured, found is not None and found.fitted_on.get("sha256") == file.sha256())


def fit_labels_file(
    path: Path, method: str, *, target: Sequence[float] | None = None, asked: Asked | None = None
) -> Calibrator:
    return fit_labels_of(_independent(PredictionsFile.open(path, asked=asked, independent=True)), method, target=target)


def fit_labels_of(file: PredictionsFile, method: str, *, target: Sequence[float] | None = None) -> Calibrator:
    data = _known(file)
    assert data.present is not None
    fitted = fit_labels(method, data.logits, data.present, weights=data.weights, target=target)
    about = {"sha256": file.sha256(), "path": file.path.name, "model": dict(data.source.model)}
    return fitted.with_context(fitted_on=about)


def base_rates_of(text: str, names: Sequence[str]) -> list[float]:
    """`0.2,0.05,0.4` in the labels' order, or `cat=0.2,dog=0.05` for all of them."""
    parts = [part.strip() for part in text.split(",")]
    try:
        if all("=" in part for part in parts):
            named = {key.strip(): float(value) for key, value in (part.rsplit("=", 1) for part in parts)}
            if set(named) != set(names):
                missing = sorted(set(names) ^ set(named))[0]
                raise ConfigError(f'names other labels than the file ("{missing}")', where="--target-prior")
            return [named[name] for name in names]
        return [float(part) for part in parts]
    except ValueError:
        raise ConfigError(
            f'"{text}" gives no base rates', where="--target-prior", fix="like 0.2,0.05,0.4 or cat=0.2,dog=0.05"
        ) from None


def label_names(path: Path, asked: Asked | None) -> tuple[str, ...]:
    return PredictionsFile.open(path, asked=asked, independent=True).source.class_names


def read_labels_file(path: Path, asked: Asked | None) -> tuple[PredictionsFile, Predictions]:
    file = _independent(PredictionsFile.open(path, asked=asked, independent=True))
    return file, _known(file)


def _independent(file: PredictionsFile) -> PredictionsFile:
    if not file.source.independent:
        raise ConfigError("holds one class a row, other files here independent labels", where=file.path)
    return file


def _known(file: PredictionsFile) -> Predictions:
    data = file.read().labelled()
    if not len(data):
        raise DataError("no row has a label", where=file.path)
    return data


def labels_calibrator(given: Calibrator | str | Path, data: Predictions) -> Calibrator:
    found = given if isinstance(given, Calibrator) else Calibrator.load(given)
    where = "the calibrator" if isinstance(given, Calibrator) else given
    if found.fitted_on.get("outcome") != "independent":
        raise ConfigError("was fitted for one class a row, not for independent labels", where=where)
    if found.classes != len(data.class_names):
        raise ConfigError(f"is of {found.classes} labels, the file of {len(data.class_names)}", where=where)
    return found
