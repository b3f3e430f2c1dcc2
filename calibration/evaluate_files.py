"""Evaluates predictions files, each as it is and through formulas: table, JSON and report are made from this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import Source
from calibrant.calibration.calibrators import Calibrator
from calibrant.calibration.evaluation import evaluate
from calibrant.calibration.fitting import cross_fitted, rows_sha256
from calibrant.calibration.formula import Formula
from calibrant.calibration.populations import Population, fitted_population, shift_between
from calibrant.calibration.report.figures import Model
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.statistics import Statistics, for_file
from calibrant.calibration.subjects import Subject, View, subjects
from calibrant.errors import ConfigError
from calibrant.priors import UNIFORM, read_prior
from calibrant.shares import class_weights, head_medium_tail, shares


def evaluate_files(
    paths: Sequence[str | Path],
    calibrators: Sequence[str | Path] = (),
    *,
    bins: int = 15,
    target_prior: str | None = None,
    adjust: float | None = None,
    cross_fit: int | None = None,
    asked: Asked | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
) -> list[Model]:
    """Each predictions file as it is, then through each calibrator. Groups: head, medium and tail unless given.

    `target_prior` alone weights the rows to it. With `adjust` it is the prior that the probabilities are corrected for,
    and the rows count as they are. With `cross_fit` a calibrator that was fitted on the very rows it is judged on gives
    way to `cross_fit` others, each fitted without the rows that it judges.
    """
    if cross_fit is not None and cross_fit < 2:
        raise ConfigError(f"{cross_fit} parts cannot judge one another", where="--cross-fit", fix="give 2 or more")
    models = []
    weighting = None if adjust is not None else target_prior
    for subject in subjects(paths, calibrators, adjust=adjust, target_prior=target_prior, asked=asked):
        source = subject.file.source
        prior = _target(weighting, source)
        shown = groups if groups is not None else head_medium_tail(source.train_prior)
        plain = None
        for view in subject.views:
            found = for_file(subject.path, view.formula, cache=asked is None, file=subject.file)
            name, seen = view.name, _seen(view, subject, found)
            if seen and cross_fit is not None:
                found, name, seen = _crossed(view, subject, cross_fit), f"{name}, cross-fitted", False
            evaluation = evaluate(found, bins=bins, target_prior=prior, class_names=source.class_names, groups=shown)
            model = Model(name, evaluation, found, in_sample=seen)
            plain = plain or model
            notes = _notes(model, plain, view, subject, prior, adjust)
            reading = tuple(f"{name}: {note}" for note in subject.file.notes) if model is plain else ()
            models.append(replace(model, notes=(*reading, *notes)))
    return models


def _target(target_prior: str | None, source: Source) -> ArrayLike | str | None:
    """Uniform stays a word: it is uniform over the classes that have rows."""
    if target_prior is None or target_prior.strip() == UNIFORM:
        return None if target_prior is None else UNIFORM
    return read_prior(target_prior, source.class_names, train=source.train_prior)


def _seen(view: View, subject: Subject, statistics: Statistics) -> bool:
    """Was the calibrator fitted on these rows?"""
    calibrator = view.formula.calibrator
    if calibrator is None or calibrator.fitted_on.get("rows") != statistics.rows:
        return False
    known = calibrator.fitted_on.get("rows_sha256")
    if known is not None:
        data = subject.file.read().labelled()
        return bool(known == rows_sha256(data.logits, data.labels))
    return bool(calibrator.fitted_on.get("sha256") == subject.file.sha256())


def _crossed(view: View, subject: Subject, folds: int) -> Statistics:
    """Statistics of the rows, each judged by a map that was fitted on the other parts, inside the same expression."""
    calibrator = view.formula.calibrator
    assert calibrator is not None  # only a calibrator can have seen rows
    data = subject.file.read().labelled()
    settings, weights = as_fitted(calibrator, data.labels, view.calibrator)
    u = cross_fitted(
        calibrator.method, data.logits, data.labels, weights=weights, folds=folds, chosen=calibrator, **settings
    )
    shift = view.formula.shift()
    return statistics_of(u if shift is None else u - shift, data.labels)


def as_fitted(
    calibrator: Calibrator, labels: NDArray[np.int64], where: Path | None
) -> tuple[dict[str, Any], NDArray[np.float64] | None]:
    """Options and weights that the map was fitted with, to fit it again on other rows."""
    fitted = calibrator.fitted_on
    if fitted.get("by_hand"):
        raise ConfigError(
            "calibrant head chose its shifts by wanted recall or precision, which parts of the rows cannot repeat",
            where=where,
            fix="leave --cross-fit out, or fit one with calibrant calibrate",
        )
    settings: dict[str, Any] = dict(fitted.get("options") or {})
    if fitted.get("strength") and fitted.get("log_prior_ratio") is not None:
        settings |= {"log_prior_ratio": fitted["log_prior_ratio"], "strength": fitted["strength"]}
    if not fitted.get("weighted"):
        return settings, None
    if fitted.get("population") is None:
        raise ConfigError(
            "an older file: it does not say how its rows were weighted", where=where, fix="fit the calibrator again"
        )
    rows = np.bincount(labels, minlength=calibrator.classes)
    return settings, class_weights(rows, fitted["population"])[labels]


# ---- what must be said before the numbers ----


def _notes(
    model: Model, plain: Model, view: View, subject: Subject, prior: ArrayLike | str | None, adjust: float | None
) -> tuple[str, ...]:
    notes = []
    if model.in_sample:
        notes.append(
            f"{model.name}: judged on the very rows that it was fitted on, so the numbers flatter it; add --cross-fit 5"
        )
    calibrator = view.formula.calibrator
    if calibrator is None:
        return tuple(notes)
    meant = _meant(view.formula, adjust)
    judged = _judged(model.statistics, prior)
    if meant is None or not shift_between(meant, judged).clear:
        return tuple(notes)
    before, after = (m.evaluation.metrics["ece"].value for m in (plain, model))
    effect = f"; ECE goes from {100 * before:.2f} to {100 * after:.2f} %" + (
        ", which is worse" if after > before else ""
    )
    notes.append(
        f"{model.name}: its confidence is for rows with other class shares than these{effect}. For these: "
        + _right_call(view, subject, judged)
    )
    return tuple(notes)


def _meant(formula: Formula, adjust: float | None) -> Population | None:
    """The class shares that the probabilities are right for."""
    calibrator = formula.calibrator
    if adjust is not None and formula.prior.train is not None:
        target = formula.prior.target
        return Population(shares(target if target is not None else np.ones(formula.classes)))
    return None if calibrator is None else fitted_population(calibrator.fitted_on)


def _judged(statistics: Statistics, prior: ArrayLike | str | None) -> Population:
    rows = statistics.by_true.rows
    if prior is None:
        return Population.counted(rows)
    return Population(shares((rows > 0).astype(float) if isinstance(prior, str) else prior))


def _right_call(view: View, subject: Subject, judged: Population) -> str:
    if subject.file.source.train_prior is None:
        return "fit a calibrator on rows with the class shares of these"
    uniform = Population(np.full(view.formula.classes, 1 / view.formula.classes))
    target = f"shares:{subject.path}"
    if not shift_between(uniform, judged).clear:
        target = UNIFORM
    elif not shift_between(Population(shares(subject.file.source.train_prior)), judged).clear:
        target = "train"
    return f"calibrant evaluate {subject.path} --calibrator {view.calibrator} --adjust 1 --target-prior {target}"
