"""Predictions files of independent labels, evaluated and calibrated: what the commands do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Predictions, PredictionsFile
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
    if not path.exists() or (path.is_dir() and not any(path.glob("*.parquet"))):
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
        file, data = read_labels_file(path, asked)
        views: list[tuple[str, Calibrator | None]] = [(file_name, None)]
        views += [
            (f"{file_name}, {label}", labels_calibrator(c, data)) for c, label in zip(calibrators, maps, strict=True)
        ]
        for name, calibrator in views:
            logits = data.logits if calibrator is None else calibrator.logits(data.logits)
            assert data.present is not None  # of independent labels
            measured = measure_labels(
                logits, data.present, data.class_names, bins=bins, weights=data.weights, margin=margin
            )
            seen = calibrator is not None and calibrator.fitted_on.get("sha256") == file.sha256()
            found.append(LabelsModel(name, measured, seen))
    return found


def fit_labels_file(
    path: Path, method: str, *, target: Sequence[float] | None = None, asked: Asked | None = None
) -> Calibrator:
    file, data = read_labels_file(path, asked)
    assert data.present is not None
    fitted = fit_labels(method, data.logits, data.present, weights=data.weights, target=target)
    return fitted.with_context(fitted_on={"sha256": file.sha256(), "path": path.name, "model": dict(data.source.model)})


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
    file = PredictionsFile.open(path, asked=asked, independent=True)
    if not file.source.independent:
        raise ConfigError("holds one class a row, other files here independent labels", where=path)
    data = file.read().labelled()
    if not len(data):
        raise DataError("no row has a label", where=path)
    return file, data


def labels_calibrator(path: Path, data: Predictions) -> Calibrator:
    found = Calibrator.load(path)
    if found.fitted_on.get("outcome") != "independent":
        raise ConfigError("was fitted for one class a row, not for independent labels", where=path)
    if found.classes != len(data.class_names):
        raise ConfigError(f"is of {found.classes} labels, the file of {len(data.class_names)}", where=path)
    return found
