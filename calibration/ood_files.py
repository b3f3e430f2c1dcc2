"""`calibrant evaluate IN --ood OUT`: how well a model's outputs tell foreign images from those that it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.predictions import Predictions, PredictionsFile
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.ood import measure_fpr, measure_ood_auroc
from calibrant.calibration.metrics import ood_scores
from calibrant.calibration.metrics.ood import ood_detection
from calibrant.calibration.subjects import Subject, names_apart, of_run, subjects
from calibrant.errors import DataError

Vector = NDArray[np.float64]
Scorer = Callable[[Predictions], Vector]


@dataclass(frozen=True)
class OodRow:
    """A score of a model on one set of foreign rows. fpr: share of them accepted where `tpr` of the known ones are."""

    model: str
    foreign: str
    score: str
    known_rows: int
    foreign_rows: int
    tpr: float
    auroc: Measured
    fpr: Measured

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "auroc": self.auroc.to_dict(), "fpr": self.fpr.to_dict()}


def evaluate_ood(
    paths: Sequence[str | Path],
    foreign: Sequence[str | Path],
    calibrators: Sequence[str | Path] = (),
    *,
    reference: str | Path | None = None,
    tpr: float = 0.95,
) -> tuple[list[OodRow], list[str]]:
    """Every score that the files allow, for each model and foreign file; and what was left out, with the reason.

    All rows count, whatever labels the foreign ones have. `reference`: labelled predictions with features of other
    rows than those judged, for Mahalanobis distance and nearest neighbours.
    """
    rows: list[OodRow] = []
    notes: list[str] = []
    outside = [PredictionsFile.open(of_run(Path(p))[0]) for p in foreign]
    names = names_apart([file.path for file in outside])
    fitted = None if reference is None else PredictionsFile.open(of_run(Path(reference))[0]).read(features=True)
    for subject in subjects(paths, calibrators):
        known = subject.file.read(features=True)
        for name, file in zip(names, outside, strict=True):
            other = file.read(features=True)
            _refuse_other_model(known, other, file.path)
            for model, score, scorer in _scorers(subject, known, other, fitted, reference, notes):
                rows.append(_row(model, name, score, scorer(known), scorer(other), tpr))
    return rows, list(dict.fromkeys(notes))


def _row(model: str, foreign: str, score: str, known: Vector, other: Vector, tpr: float) -> OodRow:
    found = ood_detection(known, other, tpr=tpr)
    return OodRow(
        model,
        foreign,
        score,
        len(known),
        len(other),
        tpr,
        measure_ood_auroc(known, other, found.auroc),
        measure_fpr(known, other, found),
    )


def _refuse_other_model(known: Predictions, other: Predictions, where: Path) -> None:
    if known.class_names != other.class_names:
        raise DataError(
            "was written by a model of other classes", where=where, fix="predict the foreign images with the same model"
        )


def _scorers(
    subject: Subject,
    known: Predictions,
    other: Predictions,
    fitted: Predictions | None,
    reference: str | Path | None,
    notes: list[str],
) -> list[tuple[str, str, Scorer]]:
    """(model, name of the score, the score)."""
    plain = subject.views[0].name
    found: list[tuple[str, str, Scorer]] = [
        (plain, "energy", lambda p: ood_scores.energy(p.logits)),
        (plain, "MSP", lambda p: ood_scores.msp(p.logits)),
        (plain, "max logit", lambda p: ood_scores.max_logit(p.logits)),
    ]
    if known.features is None or other.features is None:
        notes.append("No features in the files: predict with --features for the feature norm and distances.")
    else:
        found.append((plain, "feature norm", lambda p: ood_scores.norm(_features(p))))
        if fitted is None:
            notes.append("Mahalanobis and kNN need reference rows: --ood-fit VAL.parquet, with features and labels.")
        else:
            found += _distances(plain, fitted, reference)
    for view in subject.views[1:]:  # what else is read off logits loses its meaning in a calibrator's
        formula = view.formula
        found.append((view.name, "MSP", lambda p, f=formula: f.probabilities(p.logits).max(1)))  # type: ignore[misc]
    return found


def _distances(plain: str, fitted: Predictions, reference: str | Path | None) -> list[tuple[str, str, Scorer]]:
    rows = fitted.labelled()
    if rows.features is None or len(rows) == 0:
        raise DataError(
            "has no features of labelled rows", where=reference, fix="train with engine.features, or predict --features"
        )
    mahalanobis = ood_scores.mahalanobis(rows.features, rows.labels)
    knn = ood_scores.knn(rows.features)
    return [
        (plain, "Mahalanobis", lambda p: mahalanobis(_features(p))),
        (plain, "kNN", lambda p: knn(_features(p))),
    ]


def _features(p: Predictions) -> NDArray[np.float32]:
    assert p.features is not None  # looked at before
    return p.features
