"""Fits a calibrator on a predictions file: what the command, the demo and the dashboard call."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.feedback_logits import refuse_cut
from calibrant.artifacts.foreign.read import Asked
from calibrant.artifacts.predictions import OUT_OF_FOLD, Predictions, PredictionsFile, Source
from calibrant.artifacts.predictions.file import shards_of
from calibrant.calibration.calibrators import Calibrator, fit
from calibrant.calibration.calibrators.table import FORMS
from calibrant.calibration.cross_fit import cross_fitted, inside, own_folds
from calibrant.calibration.decisions import Decisions, with_decisions
from calibrant.calibration.doubts import rounding_note, sharpening_note
from calibrant.calibration.evaluation import Evaluation, evaluate, judged_groups
from calibrant.calibration.formula import Formula, with_prior
from calibrant.calibration.label_shift.files import resolved, served_file
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.populations import Population, other_shares
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.row_groups import Columns, of_rows, worth_judging
from calibrant.calibration.statistics.sidecar import refuse_weights
from calibrant.calibration.verdict.case import Case, JudgedRows, Trial
from calibrant.calibration.verdict.judge import judge
from calibrant.calibration.verdict.policy import MARGIN
from calibrant.calibration.verdict.remedies.sample import MOST_ROWS
from calibrant.calibration.verdict.remedies.trials import Call, trials
from calibrant.calibration.verdict.verdict import JUDGED_SHIFT, Verdict
from calibrant.errors import ConfigError, DataError
from calibrant.priors import UNIFORM, read_prior
from calibrant.shares import class_weights, head_medium_tail

Follow = Literal["target", "train"]


@dataclass(frozen=True)
class FileFit:
    """A calibrator, and whether its confidence can be trusted; the file keeps the verdict without its commands.

    `notes`: what the predictions file was taken for, where that is not plain.
    """

    calibrator: Calibrator
    verdict: Verdict
    notes: tuple[str, ...] = ()


def fit_file(path: str | Path | PredictionsFile, method: str = "temperature", **options: Any) -> Calibrator:
    """The calibrator of `judged_fit`, whose options these are."""
    return judged_fit(path, method, **options).calibrator


def judged_fit(
    path: str | Path | PredictionsFile, method: str = "temperature", *, bins: int = 15, target_prior: str | None = None,
    adjust: float | None = None, rows_follow: Follow = "target", decisions: Decisions | None = None,
    options: Mapping[str, Any] | None = None, asked: Asked | None = None, margin: float = MARGIN,
) -> FileFit:  # fmt: skip
    """Fits on the labelled rows of a predictions file; the result is the whole formula, with what brought it about.

    Without `adjust` nothing is corrected; the rows count as they are, or weighted to `target_prior` where one is given.
    With `adjust`, a total strength, the file holds the correction as well. The rows then follow the target prior (the
    uniform one unless given) and the map is fitted inside the correction; or, with `rows_follow="train"`, they follow
    the training prior: the map is fitted without the correction, which comes after it (always so where the target is
    `estimate:SERVED`, the prior that unlabelled predictions show). The numbers after calibration,
    prediction sets and abstain thresholds are cross-fitted: each row is judged by a map that was fitted on other rows.
    """
    file = path if isinstance(path, PredictionsFile) else PredictionsFile.open(validation_file(Path(path)), asked=asked)
    reads = method in FORMS and FORMS[method].reads_features
    data, source = _fittable(file, features=reads), file.source
    refuse_cut(source.model, file.path, "fitting a calibrator")
    asked_prior = target_prior
    if served_file(target_prior) is not None:
        target_prior = resolved(target_prior, file.path)
        rows_follow = "train" if adjust is not None else rows_follow  # these rows are not of the place of use
    if rows_follow == "train" and adjust is None:
        raise ConfigError("needs a correction to come after the map", where="--rows-follow train", fix="add --adjust 1")
    prior = Formula.of(None, source, adjust=adjust, target_prior=target_prior, where=str(file.path)).prior
    z, y = data.logits, data.labels
    rows = np.bincount(y, minlength=z.shape[1])
    wanted = _over_rows(target_prior or UNIFORM, source, rows)
    weighted = target_prior is not None and adjust is None
    weights = class_weights(rows, wanted)[y] if weighted else None
    within = prior if rows_follow == "target" else replace(prior, target=None, applied=-prior.absorbed)
    settings = inside(within) | dict(options or {})
    if reads:
        settings["features"] = data.features
    calibrator = fit(method, z, y, weights=weights, **settings)
    shift = prior.shift()
    shift = np.zeros(z.shape[1]) if shift is None else shift
    folds = own_folds(data)
    held_out = cross_fitted(method, z, y, weights=weights, folds=folds, chosen=calibrator, **settings) - shift
    judged = class_weights(rows, wanted) if weighted or rows_follow == "train" else None
    found = statistics_of(held_out, y).weighted(judged)
    before, after = evaluate(statistics_of(z - shift, y).weighted(judged), bins=bins), evaluate(found, bins=bins)
    groups, unjudged = worth_judging(data.groups)
    call = Call(file.path, None, asked_prior, adjust, asked)
    case = Case(
        after,
        found,
        source.class_names,
        head_medium_tail(source.train_prior),
        judged_groups(of_rows(held_out, y, data.groups, groups), found, bins),
        applied="calibrator",
        rows=partial(_judged_rows, z, held_out, y, judged, data.groups, data.features if reads else None),
        trials=() if rows_follow == "train" else _trials(call, Formula(z.shape[1], calibrator, prior), file, y, judged),
        labels_call=call.labels(margin),
    )
    verdict = judge(case, margin=margin)
    context = _context(file, z, y, options) | {"rows_follow": rows_follow if adjust is not None else "themselves"}
    if folds is not None:
        context["rows_are"] = OUT_OF_FOLD
    if asked_prior is not None:
        context["target_prior"] = asked_prior if asked_prior == UNIFORM else Path(asked_prior).name
    if judged is not None:
        context["population"] = (wanted / wanted.sum()).tolist()
    if not weighted:
        note = other_shares(rows, prior, source, adjust=adjust, follow=rows_follow, name=file.path.name)
        context |= {} if note is None else {"note": note}
    metrics = {
        "before": reported(before), "after": reported(after), "after_is": "cross-fitted", "bins": bins,
        "verdict": {**verdict.without_commands().to_dict(), JUDGED_SHIFT: shift.tolist()},
    }  # fmt: skip
    calibrator = with_prior(calibrator, prior, source).with_context(fitted_on=context, metrics=metrics)
    calibrator = _with_doubt(calibrator, data, source, before)
    if decisions is not None:
        elsewhere = None  # rows that follow the target prior, or are to stand for themselves, weigh the same
        if weighted:
            elsewhere = wanted
        elif rows_follow == "train":
            elsewhere = np.ones(z.shape[1]) if prior.target is None else np.asarray(prior.target)
        calibrator = with_decisions(calibrator, softmax(held_out), y, decisions, target_prior=elsewhere, shift=shift)
    return FileFit(calibrator, verdict, (*file.notes, *unjudged))


def _fittable(file: PredictionsFile, *, features: bool) -> Predictions:
    """The labelled rows, where there are any that the network has not been trained on."""
    data = file.read(features=features).labelled()
    if len(data) == 0:
        raise DataError("no row has a label", where=file.path, fix="calibration needs labelled predictions")
    if data.split is not None and set(data.split) == {"train"}:
        raise DataError(
            "holds the rows that the model was trained on, of which it is surer than of any others",
            where=file.path,
            fix="calibrate on validation rows, or on rows judged out of fold (calibrant head --set data.folds=10)",
        )
    refuse_weights(data, file.path)
    return data


def _context(
    file: PredictionsFile, z: NDArray[Any], y: NDArray[np.int64], options: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What it was fitted on, so that it is known again."""
    return {
        "path": file.path.name, "sha256": file.sha256(), "rows_sha256": rows_sha256(z, y),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "model": dict(file.source.model),
        "options": dict(options or {}),
    }  # fmt: skip


def _with_doubt(calibrator: Calibrator, data: Predictions, source: Source, before: Evaluation) -> Calibrator:
    """Rounded probabilities doubt more than a map that sharpens."""
    doubt = sharpening_note(
        calibrator.parameters.get("temperature"), before.mean_confidence.value, before.accuracy.value
    )
    if source.rounded is not None:
        doubt = rounding_note(data.logits, data.labels, source.rounded)
    return calibrator if doubt is None else replace(calibrator, fit={**calibrator.fit, "note": doubt})


def _judged_rows(
    z: NDArray[Any],
    held_out: NDArray[np.float64],
    y: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    groups: Columns,
    features: NDArray[Any] | None,
) -> JudgedRows:
    return JudgedRows(z.astype(np.float64), held_out, y, len(y), weights, groups, features).fewer(MOST_ROWS)


def _trials(
    call: Call, formula: Formula, file: PredictionsFile, y: NDArray[np.int64], weights: NDArray[np.float64] | None
) -> tuple[Trial, ...]:
    """What else could be done with these rows than the map that was just fitted."""
    found = Population.counted(np.bincount(y, minlength=formula.classes))
    fitted = "" if formula.calibrator is None else formula.calibrator.method
    every = trials(call, formula, file.source, found, in_sample=False, weighted=weights is not None)
    return tuple(t for t in every if f"({fitted})" not in t.text)


def validation_file(path: Path) -> Path:
    """A run folder stands for its validation predictions, or for those out of fold."""
    if not path.is_dir() or shards_of(path):
        return path
    found = (path / "predictions" / f"{split}.parquet" for split in ("val", OUT_OF_FOLD))
    return next((file for file in found if file.is_file()), path)


def _over_rows(target_prior: str, source: Source, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The shares asked for; uniform means over the classes that have rows."""
    if target_prior.strip() == UNIFORM:
        return (rows > 0).astype(np.float64)
    return read_prior(target_prior, source.class_names, train=source.train_prior)


def rows_sha256(logits: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> str:
    """Hash of labelled rows, the same whatever file they lie in."""
    digest = hashlib.sha256(np.ascontiguousarray(labels, np.int64).tobytes())
    digest.update(np.ascontiguousarray(logits, np.float32).tobytes())
    return digest.hexdigest()


def reported(evaluation: Evaluation) -> dict[str, dict[str, float | None]]:
    return {m.key: evaluation.metrics[m.key].to_dict() for m in METRICS if m.stored and m.key in evaluation.metrics}
