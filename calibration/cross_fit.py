"""Maps fitted on some rows that judge others: what a calibrator gives on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.predictions import FOLD, OUT_OF_FOLD, Predictions
from calibrant.calibration.calibrators import Calibrator, fit
from calibrant.calibration.calibrators.auto import again
from calibrant.calibration.calibrators.temperature import unsaid
from calibrant.errors import ConfigError
from calibrant.shares import class_weights


def cross_fitted(
    method: str, logits: NDArray[Any], labels: NDArray[np.int64], *, weights: NDArray[np.float64] | None = None,
    features: NDArray[Any] | None = None, folds: int | NDArray[np.intp] | None = None, seed: int = 0,
    chosen: Calibrator | None = None, **options: Any,
) -> NDArray[np.float64]:  # fmt: skip
    """Calibrated logits of each row, by a calibrator fitted on the other folds: so many, or the one given of each row.

    Under "auto" the folds take what was chosen on all rows.
    """
    made: Callable[..., Calibrator] = partial(fit, method)
    if chosen is not None and (method == "auto" or chosen.method == "mixture"):
        made = partial(again, fit, chosen)
        options = {k: v for k, v in options.items() if k in ("log_prior_ratio", "strength")}
    n = len(labels)
    fold = folds if isinstance(folds, np.ndarray) else drawn_folds(n, folds, seed=seed)
    numbers = np.unique(fold)
    if len(numbers) < 2:
        every = {} if features is None else {"features": features}
        found = chosen or made(logits, labels, weights=weights, **every, **options)
        return found.logits(logits, features)
    out = np.empty(logits.shape, np.float64)
    for f in numbers:
        test, train = fold == f, fold != f
        w = None if weights is None else weights[train]
        seen = {} if features is None else {"features": features[train]}
        with unsaid():
            found = made(logits[train], labels[train], weights=w, **seen, **options)
        out[test] = found.logits(logits[test], None if features is None else features[test])
    return out


def drawn_folds(rows: int, folds: int | None = None, *, seed: int = 0) -> NDArray[np.intp]:
    """(N,) a fold for each row, at random."""
    parts = min(folds or (5 if rows <= 200_000 else 2), rows)
    return np.random.default_rng(seed).permutation(rows) % max(1, parts)


def own_folds(rows: Predictions) -> NDArray[np.intp] | None:
    """The folds that the file itself names, where it holds rows judged out of fold; None: it names none, or one."""
    names = rows.groups.get(FOLD)
    if names is None or rows.split is None or set(rows.split) != {OUT_OF_FOLD} or len(set(names)) < 2:
        return None
    return np.unique(np.asarray(names), return_inverse=True)[1].astype(np.intp)


def shares_elsewhere(
    labels: NDArray[np.int64], classes: int, *, folds: int = 5, seed: int = 0
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.float64]]]:
    """Of each fold its rows, and the class shares (C,) of the others, half a row added to each class."""
    fold = np.random.default_rng(seed).permutation(len(labels)) % folds
    for f in range(folds):
        counts = np.bincount(labels[fold != f], minlength=classes) + 0.5
        yield fold == f, counts / counts.sum()


def inside(prior: Prior) -> dict[str, Any]:
    """How `fit` is told to fit inside a correction."""
    shift = prior.shift()
    if shift is None or not shift.any():
        return {}
    if prior.absorbed:  # towards the uniform prior, by the loss: no one ratio times a strength
        return {"log_prior_ratio": shift, "strength": 1.0}
    return {"log_prior_ratio": prior.log_ratio(), "strength": prior.total}


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
