"""Evaluates predictions files, each as it is and through formulas: table, JSON and report are made from this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.feedback_logits import CUT
from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import PredictionsFile, Source
from calibrant.calibration.cross_fit import own_folds
from calibrant.calibration.evaluation import evaluate, judged_groups, under_prior
from calibrant.calibration.fitting import rows_sha256
from calibrant.calibration.formula import Formula
from calibrant.calibration.populations import Population, fitted_population
from calibrant.calibration.report.figures import Model
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.row_groups import Judged, of_file, of_rows, worth_judging
from calibrant.calibration.statistics.sidecar import Engine
from calibrant.calibration.statistics.statistics import Statistics, for_file
from calibrant.calibration.subjects import Subject, View, subjects
from calibrant.calibration.verdict.case import Case, JudgedRows
from calibrant.calibration.verdict.judge import judge
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.remedies.sample import sample
from calibrant.calibration.verdict.remedies.trials import Call, cross_fitted_as, right_target, trials
from calibrant.errors import ConfigError
from calibrant.priors import UNIFORM, read_prior
from calibrant.shares import head_medium_tail, shares


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
    margin: float = MARGIN,
    engine: Engine = "calibrant",
) -> list[Model]:
    """Each predictions file as it is, then through each calibrator. Groups: head, medium and tail unless given.

    `target_prior` alone weights the rows to it. With `adjust` it is the prior that the probabilities are corrected for,
    and the rows count as they are. With `cross_fit` a calibrator that was fitted on the very rows it is judged on gives
    way to `cross_fit` others, each fitted without the rows that it judges; rows that were judged out of fold take their
    own folds for it unasked. `margin`: the calibration error from which
    on a verdict trusts no more. `engine="ray"`: the statistics of a folder's shards come from tasks of Ray.
    """
    if cross_fit is not None and cross_fit < 2:
        raise ConfigError(f"{cross_fit} parts cannot judge one another", where="--cross-fit", fix="give 2 or more")
    found = subjects(paths, calibrators, adjust=adjust, target_prior=target_prior, asked=asked)
    return evaluate_subjects(
        found,
        bins=bins,
        target_prior=target_prior,
        adjust=adjust,
        cross_fit=cross_fit,
        asked=asked,
        groups=groups,
        margin=margin,
        engine=engine,
    )


def evaluate_subjects(
    judged_files: Sequence[Subject],
    *,
    bins: int = 15,
    target_prior: str | None = None,
    adjust: float | None = None,
    cross_fit: int | None = None,
    asked: Asked | None = None,
    groups: Mapping[str, Sequence[int]] | None = None,
    margin: float = MARGIN,
    engine: Engine = "calibrant",
) -> list[Model]:
    """The same of predictions whose formulas are at hand."""
    models = []
    weighting = None if adjust is not None else target_prior
    for subject in judged_files:
        source = subject.file.source
        prior = _target(weighting, source)
        shown = groups if groups is not None else head_medium_tail(source.train_prior)
        plain, rows = None, _Rows(subject)
        judged_values, unjudged = worth_judging(subject.file.group_columns())
        for view in subject.views:
            found = for_file(subject.path, view.formula, cache=asked is None, file=subject.file, engine=engine)
            name, seen, crossed = view.name, _seen(view, subject, found), None
            folds = cross_fit if cross_fit is not None or not seen else own_folds(subject.file.read().labelled())
            if seen and folds is not None:
                crossed = _crossed(view, subject, folds)
                found, name, seen = statistics_of(*crossed), f"{name}, cross-fitted", False
            evaluation = evaluate(found, bins=bins, target_prior=prior, class_names=source.class_names, groups=shown)
            weighted = _weighted(found, prior)
            apart = _by_group(subject.file, view.formula, crossed, judged_values)
            evaluation = replace(evaluation, row_groups=judged_groups(apart, weighted, bins))
            judged = _judged(found, prior)
            reference = view.formula.plain and len(subject.views) > 1  # its remedy stands beside it
            call = Call(subject.path, view.calibrator, target_prior, adjust, asked)
            case = Case(
                evaluation,
                weighted,
                source.class_names,
                shown,
                evaluation.row_groups,
                in_sample=seen,
                meant=_meant(view.formula, source, adjust),
                found=judged,
                applied=_applied(view.formula),
                rows=partial(rows.of, view.formula, weighted, crossed),
                trials=()
                if reference or CUT in source.model
                else tuple(trials(call, view.formula, source, judged, in_sample=seen, weighted=prior is not None)),
                labels_call=call.labels(margin),
            )
            model = Model(
                name,
                evaluation,
                found,
                in_sample=seen,
                verdict=judge(case, margin=margin),
                reference=reference,
            )
            plain = plain or model
            worse, notes = _notes(model, plain, view, subject, call, judged)
            reading = tuple(f"{name}: {note}" for note in (*subject.file.notes, *unjudged)) if model is plain else ()
            models.append(replace(model, notes=(*reading, *notes), worse=worse))
    return models


class _Rows:
    """Of a file, read once and only where a verdict asks for them."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._plain: JudgedRows | None = None

    def of(
        self,
        formula: Formula,
        statistics: Statistics,
        crossed: tuple[NDArray[np.float64], NDArray[np.int64]] | None,
    ) -> JudgedRows:
        weights = statistics.class_weights
        if crossed is not None:
            data = self._subject.file.read(features=formula.reads_features).labelled()
            logits = data.logits.astype(np.float64)
            return JudgedRows(logits, *crossed, len(data), weights, data.groups, data.features)
        if self._plain is None or (formula.reads_features and self._plain.features is None):
            self._plain = sample(self._subject.file, statistics.rows, features=formula.reads_features)
        plain = self._plain
        judged = plain.plain if formula.plain else formula.logits(plain.plain, plain.features)
        return replace(plain, judged=judged, weights=weights)


def _weighted(statistics: Statistics, prior: ArrayLike | str | None) -> Statistics:
    """As `evaluate` judges them."""
    return statistics if prior is None else under_prior(statistics, None, prior)[0]


def _applied(formula: Formula) -> str | None:
    if formula.plain:
        return None
    return "correction" if formula.calibrator is None else "calibrator"


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


def _crossed(
    view: View, subject: Subject, folds: int | NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits and labels of the rows, each judged by a map that was fitted on the other parts."""
    calibrator = view.formula.calibrator
    assert calibrator is not None  # only a calibrator can have seen rows
    data = subject.file.read(features=calibrator.reads_features).labelled()
    found = cross_fitted_as(
        calibrator, view.formula, data.logits, data.labels, view.calibrator, folds=folds, features=data.features
    )
    return found, data.labels


def _by_group(
    file: PredictionsFile,
    formula: Formula,
    crossed: tuple[NDArray[np.float64], NDArray[np.int64]] | None,
    judged: Judged,
) -> dict[tuple[str, str], Statistics]:
    if not judged:
        return {}
    if crossed is None:
        return of_file(file, formula, judged)
    return of_rows(*crossed, file.group_columns(), judged)


# ---- what must be said before the numbers ----


def _notes(
    model: Model, plain: Model, view: View, subject: Subject, call: Call, judged: Population
) -> tuple[bool, tuple[str, ...]]:
    """Whether the calibrator, which is for other rows, makes it worse on these; and what must be said, that first."""
    notes, source = list[str](), subject.file.source
    impossible = model.evaluation.zero_probability_labels
    if impossible:
        notes.append(
            f"{model.name}: {impossible} of {model.evaluation.rows} rows have a label of probability 0, so the NLL is "
            "infinite"
        )
    if view is subject.views[-1] and view.formula.plain and "deployed" in source.model:
        missing = "" if "applied" in source.model else "its calibrator and "
        notes.append(
            f"{model.name}: logits of a deployed file, without {missing}its correction of the class prior; "
            "--calibrator FILE.onnx judges what it answers"
        )
    if model.in_sample:
        notes.append(
            f"{model.name}: judged on the very rows that it was fitted on, so the numbers flatter it; add --cross-fit 5"
        )
    shifted = model.verdict is not None and any(c.kind == "prior-shift" for c in model.verdict.causes)
    if view.formula.calibrator is None or not shifted:
        return False, tuple(notes)
    before, after = (m.evaluation.metrics["ece"].value for m in (plain, model))
    effect = f"; ECE goes from {100 * before:.2f} to {100 * after:.2f} %" + (
        ", which is worse" if after > before else ""
    )
    notes.insert(
        0,
        f"{model.name}: its confidence is for rows with other class shares than these{effect}. For these: "
        + _right_call(call, source, judged),
    )
    return after > before, tuple(notes)


def _meant(formula: Formula, source: Source, adjust: float | None) -> Population | None:
    """The class shares that the probabilities are right for; of plain logits those that training left them with."""
    calibrator, uniform = formula.calibrator, np.ones(formula.classes)
    if adjust is not None and formula.prior.train is not None:
        target = formula.prior.target
        return Population(shares(target if target is not None else uniform))
    if calibrator is not None:
        return fitted_population(calibrator.fitted_on)
    if source.train_prior is None:
        return None
    return Population(shares(np.asarray(source.train_prior) ** (1 - source.absorbed)))


def _judged(statistics: Statistics, prior: ArrayLike | str | None) -> Population:
    rows = statistics.by_true.rows
    if prior is None:
        return Population.counted(rows)
    return Population(shares((rows > 0).astype(float) if isinstance(prior, str) else prior))


def _right_call(call: Call, source: Source, judged: Population) -> str:
    target = right_target(source, judged, call.path)
    if target is None:
        return "fit a calibrator on rows with the class shares of these"
    return replace(call, target_prior=None, adjust=None).evaluate("--adjust", "1", "--target-prior", target)
