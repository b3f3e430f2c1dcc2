"""The calibration methods by name, and `fit`."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.adjustment import checked_ratio
from calibrant.calibration.calibrators import auto
from calibrant.calibration.calibrators.base import Calibrator
from calibrant.calibration.calibrators.table import FORMS
from calibrant.calibration.inputs import Labels, check_labels, check_logits, check_weights, finite_logits, ruled_out
from calibrant.calibration.softmax import FLOOR_DEPTH
from calibrant.errors import ConfigError, DataError, did_you_mean

__all__ = ["METHODS", "Calibrator", "fit"]

METHODS = (*FORMS, "auto")


def fit(
    method: str,
    logits: ArrayLike,
    labels: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    features: NDArray[np.floating[Any]] | None = None,
    log_prior_ratio: ArrayLike | None = None,
    strength: float = 0.0,
    **options: Any,
) -> Calibrator:
    """Fits a calibrator on held-out logits (N, C) and labels (N,); `features` (N, D) for a method that reads them.

    On data that follow the training prior leave `strength` at 0. On data that follow the target prior pass the ratio
    and strength of the deployed formula: the map is then fitted inside the whole expression, and the term stays outside
    of the calibrator. Options belong to the method (see docs/calibration.md); an unknown one is an error. Rows whose
    label is ruled out (a logit of -inf) tell no map from another: they are left out, with a note.
    """
    if method != "auto" and method not in FORMS:
        raise ConfigError(f'no calibration method "{method}"', fix=did_you_mean(method, (*FORMS, "auto")))
    z = check_logits(logits)
    y = check_labels(labels, *z.shape)
    w = check_weights(weights, len(y))
    out = ruled_out(z)
    if out.any():
        possible = ~out[np.arange(len(y)), y]
        if not possible.any():
            raise DataError("the label of every row has probability 0 (a logit of -infinity)")
        some = None if w is None else w[possible]
        z = finite_logits(z, FLOOR_DEPTH)[possible]
        seen = None if features is None else features[possible]
        found = fit(
            method,
            z,
            y[possible],
            weights=some,
            features=seen,
            log_prior_ratio=log_prior_ratio,
            strength=strength,
            **options,
        )
        return found if possible.all() else _without_ruled_out(found, y, int((~possible).sum()))
    function = auto.choose if method == "auto" else FORMS[method].fit
    accepted = inspect.signature(function).parameters
    known = [name for name, p in accepted.items() if p.kind is p.KEYWORD_ONLY and name not in ("offset", "features")]
    if method == "auto":
        known = ["candidates", "folds", "seed"]
    for name in options:
        if name not in known:
            fix = did_you_mean(name, known) if known else "it has no options"
            raise ConfigError(f'calibration method "{method}" has no option "{name}"', fix=fix)
    if method == "auto":
        shared: dict[str, Any] = {} if strength == 0.0 else {"log_prior_ratio": log_prior_ratio, "strength": strength}
        return auto.choose(fit, z, y, w, **options, **shared)
    if w is not None and "weights" not in accepted:
        raise ConfigError(f'method "{method}" takes no weights', fix="isotonic and beta are like it and do")
    if strength != 0.0:
        if log_prior_ratio is None:
            raise ConfigError(f"adjustment strength {strength} without log_prior_ratio")
        if "offset" not in accepted:
            raise ConfigError(
                f'method "{method}" cannot be fitted inside a prior adjustment',
                fix="fit it on data that follow the training prior with strength 0",
            )
        options["offset"] = -strength * checked_ratio(log_prior_ratio, z.shape[1])
    if FORMS[method].reads_features:
        options["features"] = features
    arguments = (z, y, w) if "weights" in accepted else (z, y)
    parameters, notes = FORMS[method].fit(*arguments, **options)
    fitted_on: dict[str, Any] = {"rows": len(y), "prior": (np.bincount(y, minlength=z.shape[1]) / len(y)).tolist()}
    if w is not None:
        fitted_on["weighted"] = True
        fitted_on["effective_rows"] = float(w.sum() ** 2 / np.dot(w, w))
    if strength != 0.0 and log_prior_ratio is not None:
        fitted_on["strength"] = float(strength)
        fitted_on["log_prior_ratio"] = np.asarray(log_prior_ratio, np.float64).tolist()
    return Calibrator(method, z.shape[1], parameters, notes, fitted_on)


def _without_ruled_out(calibrator: Calibrator, labels: Labels, lost: int) -> Calibrator:
    """The file says all the rows, and how many of them could not count."""
    said = f"{lost} of {len(labels)} rows have a label of probability 0, which no map changes: they were left out"
    notes = {**calibrator.fit, "note": "; ".join(filter(None, [calibrator.fit.get("note"), said]))}
    prior = (np.bincount(labels, minlength=calibrator.classes) / len(labels)).tolist()
    return replace(calibrator, fit=notes, fitted_on={**calibrator.fitted_on, "rows": len(labels), "prior": prior})
