"""Logits of any scikit-learn classifier, column for column those of the classes asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.foreign.precision import precision_of

Matrix = NDArray[np.float64]


def logits_of(estimator: Any, rows: Any, classes: NDArray[Any], *, floor: float | None = None) -> Matrix:
    """(N, C). A class that the estimator has never seen is ruled out: -inf.

    Of decision_function where there is one: of one column s it is [-s/2, s/2], whose softmax is the sigmoid of s. Else
    log of predict_proba, zeros at `floor` (None: half of what its values resolve).
    """
    own = np.asarray(estimator.classes_)
    if hasattr(estimator, "decision_function"):
        found = _of_decisions(np.asarray(estimator.decision_function(rows), np.float64), estimator, len(own))
    else:
        found = log_probabilities(np.asarray(estimator.predict_proba(rows), np.float64), floor=floor)
    if np.array_equal(own, classes):
        return found
    out = np.full((len(found), len(classes)), -np.inf)
    out[:, np.searchsorted(classes, own)] = found
    return out


def uses_probabilities(estimator: Any) -> bool:
    return not hasattr(estimator, "decision_function")


def floor_of(parts: Sequence[Matrix]) -> float:
    """Half of what the probabilities resolve: a tenth of a vote of ten trees stands for less than one of them."""
    return precision_of(np.concatenate(parts)).floor


def log_probabilities(probabilities: Matrix, *, floor: float | None = None) -> Matrix:
    lowest = precision_of(probabilities).floor if floor is None else floor
    return np.log(np.maximum(probabilities, lowest))  # type: ignore[no-any-return]


def _of_decisions(scores: Matrix, estimator: Any, classes: int) -> Matrix:
    if scores.ndim == 1:
        scores = scores[:, None]
    if scores.shape[1] == 1:
        return np.hstack([-scores / 2, scores / 2])
    if scores.shape[1] != classes or (classes > 2 and getattr(estimator, "decision_function_shape", "") == "ovo"):
        raise ValueError(
            f"decision_function of {type(estimator).__name__} gives {scores.shape[1]} columns for pairs of {classes} "
            'classes, not one for each class; use decision_function_shape="ovr"'
        )
    return scores


def fit_options(method: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is told to a fit: a temperature is that of scikit-learn, without a prior where the rows hardly tell it, so
    that a weight of 2 is a row given twice."""
    return ({"steady": False} if method == "temperature" else {}) | dict(options or {})
