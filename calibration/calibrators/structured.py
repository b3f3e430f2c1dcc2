"""Structured scaling: a map kept near a temperature, each kind of entry with its own strength.

structured: zeta = (I + D + M) x + c.     structured-vector: the same without M.
x = log softmax(z / T), or z / T centred in each row ("logits": the map is then affine in z and folds into a network's
last layer). T is fitted first; the penalty and the choice of its strength are those of `strengths.py`, after Berta,
Holzmueller, Jordan and Bach, "Structured matrix scaling for multi-class calibration" (2026).
Differs: the strength is the data's; T has a prior where the rows hardly tell it; x is not clipped by a mixture.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from calibrant.calibration.calibrators.affine import check_matrix, matrix_step, vector_step
from calibrant.calibration.calibrators.estimation.near import Near, fit_near
from calibrant.calibration.calibrators.estimation.newton import Vector
from calibrant.calibration.calibrators.estimation.strengths import fit_averaged
from calibrant.calibration.calibrators.form import Form, Matrix, Parameters, numbers, positive
from calibrant.calibration.calibrators.steps import Affine, LogSoftmax, Step
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ConfigError

Inputs = Literal["logits", "log-probabilities"]


def fit_structured(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    inputs: str = "log-probabilities",
    penalty: float | None = None,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`inputs`: "logits" (folds into the last layer) or "log-probabilities"; `penalty` fixes its strength."""
    return _fit(logits, labels, weights, offset, inputs, penalty, seed, full=True)


def fit_structured_vector(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: Vector | None = None,
    inputs: str = "log-probabilities",
    penalty: float | None = None,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`inputs`: "logits" (folds into the last layer) or "log-probabilities"; `penalty` fixes its strength."""
    return _fit(logits, labels, weights, offset, inputs, penalty, seed, full=False)


def _fit(
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    offset: Vector | None,
    inputs: str,
    penalty: float | None,
    seed: int,
    *,
    full: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    if inputs not in get_args(Inputs):
        raise ConfigError(f'inputs is "{inputs}", expected one of {", ".join(get_args(Inputs))}')
    if penalty is not None and not penalty > 0:
        raise ConfigError(f"penalty is {penalty}, expected more than 0")
    z, c = logits.astype(np.float64), logits.shape[1]
    temperature = steadied(logits, labels, weights, offset=offset)
    x = near_inputs(z / temperature, inputs)
    found = (
        fit_averaged(x, labels, weights, offset, full=full, seed=seed)
        if penalty is None
        else fit_near(x, labels, weights, offset, penalty, full=full)
    )
    bias = found.c.tolist()
    if inputs == "logits":
        matrix = _centred(_matrix(found, c)) / temperature
        return {"inputs": inputs, "matrix": matrix.tolist(), "bias": bias}, found.notes
    if full:
        parameters = {"inputs": inputs, "temperature": temperature, "matrix": _matrix(found, c).tolist(), "bias": bias}
        return parameters, found.notes
    return {"inputs": inputs, "temperature": temperature, "weights": found.a.tolist(), "bias": bias}, found.notes


def near_inputs(x: Matrix, inputs: str) -> Matrix:
    """What the map acts on, of logits at their temperature."""
    return _centred(x) if inputs == "logits" else log_softmax(x)


def _matrix(found: Near, classes: int) -> Matrix:
    return np.diag(found.a) if found.a.ndim == 1 else found.a


def _centred(x: Matrix) -> Matrix:
    """Each row minus its mean; of a matrix: what it does to logits that are centred first."""
    out: Matrix = x - x.mean(axis=1, keepdims=True)
    return out


def _check_inputs(p: Parameters) -> None:
    if p.get("inputs") not in get_args(Inputs):
        raise ConfigError(f'parameter "inputs" is {p.get("inputs")!r}, expected one of {", ".join(get_args(Inputs))}')
    if p["inputs"] == "log-probabilities":
        positive(p, "temperature", ())


def _check(p: Parameters, c: int) -> None:
    _check_inputs(p)
    check_matrix(p, c)


def _check_vector(p: Parameters, c: int) -> None:
    _check_inputs(p)
    if p["inputs"] == "logits":
        check_matrix(p, c)
        return
    numbers(p, "weights", (c,))
    numbers(p, "bias", (c,))


def _steps(p: Parameters, c: int) -> tuple[Step, ...]:
    if p["inputs"] == "logits":
        return (matrix_step(p),)
    last = vector_step(p) if "weights" in p else matrix_step(p)
    return Affine.scale(np.full(c, 1.0 / float(p["temperature"]))), LogSoftmax(), last


STRUCTURED = Form("structured", fit_structured, _check, _steps)
STRUCTURED_VECTOR = Form("structured-vector", fit_structured_vector, _check_vector, _steps)
