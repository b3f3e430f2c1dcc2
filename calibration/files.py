"""Fitting and evaluating predictions files: what the commands, the demo and the dashboard call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.artifacts.predictions import PredictionsFile, Source
from calibrant.calibration.adjustment import class_weights, log_prior_ratio
from calibrant.calibration.calibrators import Calibrator, fit
from calibrant.calibration.conformal.sets import KINDS, Kind, abstain_for_coverage, abstain_for_risk, fit_conformal
from calibrant.calibration.evaluation import Evaluation, evaluate
from calibrant.calibration.report.figures import Model
from calibrant.calibration.softmax import softmax
from calibrant.calibration.statistics.accumulate import statistics_of
from calibrant.calibration.statistics.statistics import Statistics, for_file
from calibrant.errors import ConfigError, DataError, FormatError, did_you_mean

_REPORTED = (
    "accuracy", "balanced_accuracy", "nll", "brier", "ece", "over_ece", "under_ece", "adaptive_ece", "classwise_ece",
)  # fmt: skip


@dataclass(frozen=True)
class Decisions:
    """Prediction sets and an abstain threshold to fit along. `alphas`: one set for each."""

    alphas: tuple[float, ...] = ()
    kind: str = "lac"
    class_conditional: bool = False
    risk: float | None = None
    coverage: float | None = None


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
        target = read_prior(target_prior, file.source)
        share = np.bincount(y, minlength=z.shape[1]) / len(y)
        by_class = class_weights(share, (share > 0).astype(float) if isinstance(target, str) else target)
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
    return calibrator if decisions is None else _decide(calibrator, softmax(held_out), y, decisions)


def _decide(calibrator: Calibrator, probs: NDArray[np.float64], y: NDArray[np.int64], wanted: Decisions) -> Calibrator:
    if wanted.kind not in KINDS:
        raise ConfigError(f'no prediction set of kind "{wanted.kind}"', fix=did_you_mean(wanted.kind, KINDS))
    kind: Kind = wanted.kind  # type: ignore[assignment]
    sets = {
        f"{alpha:g}": fit_conformal(
            probs, y, alpha=alpha, kind=kind, class_conditional=wanted.class_conditional
        ).to_dict()
        for alpha in wanted.alphas
    }  # fmt: skip
    abstain = None
    if wanted.risk is not None:
        abstain = {"wanted_risk": wanted.risk, **abstain_for_risk(probs, y, risk=wanted.risk).to_dict()}
    elif wanted.coverage is not None:
        abstain = {
            "wanted_coverage": wanted.coverage, **abstain_for_coverage(probs, y, coverage=wanted.coverage).to_dict()
        }  # fmt: skip
    return replace(calibrator, conformal=sets or None, abstain=abstain)


def _ratio(source: Source, target_prior: str | None, where: Path) -> NDArray[np.float64]:
    if source.train_prior is None:
        raise ConfigError("the predictions do not say the training prior, which --adjust needs", where=where)
    target = "uniform" if target_prior is None else read_prior(target_prior, source)
    return log_prior_ratio(source.train_prior, None if isinstance(target, str) else target)


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
    return {key: evaluation.metrics[key].to_dict() for key in _REPORTED if key in evaluation.metrics}


def evaluate_files(
    paths: Sequence[str | Path], calibrators: Sequence[str | Path] = (), *, bins: int = 15,
    target_prior: str | None = None, groups: Mapping[str, Sequence[int]] | None = None,
) -> list[Model]:  # fmt: skip
    """Each predictions file as it is, then through each calibrator. Groups: head, medium and tail unless given."""
    loaded = [(Path(c), Calibrator.load(c)) for c in calibrators]
    models = []
    for path in map(Path, paths):
        source = PredictionsFile.open(path).source
        prior = read_prior(target_prior, source) if target_prior is not None else None
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


def head_medium_tail(train_prior: Sequence[float] | None) -> dict[str, list[int]]:
    """Classes in thirds by their share of the training set, where the largest is at least twice the smallest."""
    if train_prior is None or len(train_prior) < 3:
        return {}
    prior = np.asarray(train_prior, np.float64)
    if prior.max() < 2 * prior.min():
        return {}
    parts = np.array_split(np.argsort(-prior, kind="stable"), 3)
    return {
        name: sorted(part.tolist()) for name, part in zip(("head", "medium", "tail"), parts, strict=True) if len(part)
    }


def _model(
    name: str, statistics: Statistics, source: Source, bins: int, prior: ArrayLike | str | None,
    groups: Mapping[str, Sequence[int]],
) -> Model:  # fmt: skip
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
