"""Temperature scaling: one number T, softmax(z / T), by Newton's method on log(1/T) inside a bracket.

With b = 1/T and an optional fixed offset o (the prior term of architecture.md), p = softmax(b z + o) and
    NLL(b) = mean_i w_i (log sum exp(b z_i + o) - b z_iy - o_y)
    g = dNLL/db = mean_i w_i (E_p[z] - z_y)          h = d2NLL/db2 = mean_i w_i Var_p[z] >= 0
NLL is convex in b, so the sign of g brackets the optimum: a Newton step that leaves the bracket is replaced by its
geometric middle. One pass over the logits, in chunks, gives NLL, g and h together. Start: the optimum of a spread-out
sample of the rows, so that the full data see few passes. Standard error: Fisher information, se(b) = 1 / sqrt(n h) and
se(T) = T^2 se(b).

Differs from common code, which takes a fixed number of optimiser steps and stops wherever it is: this one ends when
the gradient is at rounding level and says so in the certificate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.form import Form, Parameters, positive
from calibrant.calibration.calibrators.steps import (
    Affine,
    Step,
)
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import row_dots

log = logging.getLogger(__name__)
_UNSAID: ContextVar[bool] = ContextVar("unsaid", default=False)

LOWEST, HIGHEST = 1e-2, 1e2  # of T; beyond, the data want no finite temperature
_STEADY_ROWS = 512
_UNCERTAIN = 1 / 3  # of log T, one standard error
PRIOR_OF_LOG_T = (float(np.log(1.6)), 0.5)  # mean and deviation
_SEPARATED = f"the logits separate the labels: the NLL falls until T = {LOWEST:g}, which is kept"
# Logits in flight: 256 KB in float64 stay in the second-level cache; with many classes longer rows of work pay more.
_CHUNK_FEW, _CHUNK_MANY = 1 << 15, 1 << 16
_START_ROWS, _START_NUMBERS = 16384, 1 << 20


@contextmanager
def unsaid() -> Iterator[None]:
    """Fits inside keep their notes to themselves: those of parts of the rows would say one thing five times."""
    token = _UNSAID.set(True)
    try:
        yield
    finally:
        _UNSAID.reset(token)


@dataclass(frozen=True)
class TemperatureFit:
    """The certificate of a fit. `gradient` and `curvature` are g and h above, at the T that is returned."""

    temperature: float
    standard_error: float | None
    nll: float
    gradient: float
    curvature: float
    passes: int
    converged: bool
    note: str | None = None


def fit_temperature(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: NDArray[np.float64] | None = None,
    steady: bool | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """`steady`: a prior on T decides along, always (true), never (false), or where the rows hardly tell T (unsaid)."""
    found = minimise_nll(logits, labels, weights, offset=offset)
    error = found.standard_error
    vague = found.note == _SEPARATED or (error is not None and error > _UNCERTAIN * found.temperature)
    if steady or (steady is None and vague):
        said = "the rows hardly tell T: a prior around 1.6 had a part in it" if vague else None
        found = replace(found, temperature=steadied(logits, labels, weights, offset=offset), note=said)
    if found.note and not _UNSAID.get():
        log.warning("temperature: %s", found.note)
    fit = asdict(found)
    return {"temperature": fit.pop("temperature")}, fit


def minimise_nll(
    logits: Floats, labels: Labels, weights: Weights | None = None, *, offset: NDArray[np.float64] | None = None
) -> TemperatureFit:
    n = len(labels)
    start = 1.0
    enough = max(1024, min(_START_ROWS, _START_NUMBERS // logits.shape[1]))
    if n > 2 * enough:
        step = n // enough
        some = slice(None, None, step)
        sample = _newton(logits[some], labels[some], None if weights is None else weights[some], offset, 1.0, 1e-4)
        if sample.converged:
            start = 1.0 / sample.temperature
    return _newton(logits, labels, weights, offset, start, 1e-9)


def steadied(
    logits: Floats,
    labels: Labels,
    weights: Weights | None = None,
    *,
    offset: NDArray[np.float64] | None = None,
    prior: tuple[float, float] = PRIOR_OF_LOG_T,
) -> float:
    """T with a prior, from which richer maps start: log T normal with this mean and deviation, beside the losses.

    Networks are rarely surer or less sure than that. Fifty rows without an error then do not say T = 0; with a thousand
    rows the prior moves T in its third digit.
    """
    from scipy.optimize import minimize_scalar

    usual, spread = prior
    n = float(len(labels)) if weights is None else float(weights.sum() ** 2 / np.dot(weights, weights))
    step = max(1, len(labels) // _STEADY_ROWS)
    some = (logits[::step], labels[::step], None if weights is None else weights[::step])
    if some[2] is not None and not some[2].any():
        some = (logits, labels, weights)

    def penalised(u: float) -> float:
        away = (u + usual) / spread
        return n * nll_pass(*some, offset, float(np.exp(u)))[0] + 0.5 * away * away

    # There may be two valleys, one at the prior and one far away: some rows tell which, all tell where its ground is.
    low, high = -float(np.log(HIGHEST)), -float(np.log(LOWEST))
    u = float(minimize_scalar(penalised, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x)
    for _ in range(20 if step > 1 else 0):
        b = float(np.exp(u))
        _, g, h, _ = nll_pass(logits, labels, weights, offset, b)
        slope = n * b * g + (u + usual) / spread**2
        curve = n * (b * b * h + max(b * g, 0.0)) + 1 / spread**2
        moved = float(np.clip(-slope / curve, -0.5, 0.5))
        u = float(np.clip(u + moved, low, high))
        if abs(moved) < 1e-4:
            break
    return float(f"{np.exp(-u):.9g}")


def _newton(
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    offset: NDArray[np.float64] | None,
    start: float,
    tolerance: float,
) -> TemperatureFit:
    low, high = np.log(1 / HIGHEST), np.log(1 / LOWEST)
    n = float(len(labels)) if weights is None else float(weights.sum() ** 2 / np.dot(weights, weights))
    u, passes = float(np.log(start)), 0
    while True:
        b = float(np.exp(u))
        value, g, h, scale = nll_pass(logits, labels, weights, offset, b)
        passes += 1
        if (
            h < 1e-200 or value < 1e-15
        ):  # nothing varies: no spread in the logits at all, or none left at so low a temperature
            return _flat(logits, labels, weights, offset, value, g, h, passes)
        if g > 0:
            high = min(high, u)
        elif g < 0:
            low = max(low, u)
        # In u = log b: derivative b g, second derivative b^2 h + b g; where that is not convex, step in b instead.
        second = b * b * h + b * g
        step = -b * g / second if second > 0 else -g / (b * h)
        rounding = 8e-16 * scale / (b * h) / b  # what the gradient's own rounding moves u by
        if abs(step) <= max(tolerance, rounding):
            # One last step is free: its error is the square of a step already this small.
            b_final = float(np.exp(u + step))
            t = float(f"{1 / b_final:.12g}")  # digits below depend on the order of the sums, i.e. of the rows
            error = t * t / np.sqrt(n * h)
            return TemperatureFit(t, float(error), value, g, h, passes, True)
        if high - low < 1e-12 or passes >= 60:
            t = float(f"{1 / b:.12g}")
            if u <= np.log(1 / HIGHEST) + 1e-9:
                note = f"the labels do not follow the logits: the NLL falls until T = {HIGHEST:g}, which is kept"
            elif u >= np.log(1 / LOWEST) - 1e-9:
                note = _SEPARATED
            else:
                note = "did not converge"
            return TemperatureFit(t, None, value, g, h, passes, False, note)
        u_next = u + float(np.clip(step, -1.5, 1.5))
        if not low < u_next < high:
            # Outside what the signs allow: go to the edge of the range once, else halve the bracket.
            edge = np.log(1 / LOWEST) if g < 0 else np.log(1 / HIGHEST)
            u_next = edge if (high if g < 0 else low) == edge else 0.5 * (low + high)
        u = float(u_next)


def _flat(
    logits: Floats,
    labels: Labels,
    weights: Weights | None,
    offset: NDArray[np.float64] | None,
    value: float,
    g: float,
    h: float,
    passes: int,
) -> TemperatureFit:
    _, _, spread, _ = nll_pass(logits, labels, weights, offset, 1 / HIGHEST)
    if spread < 1e-200:
        note = "the logits of each row are all equal: any temperature gives the same probabilities; T = 1 is kept"
        return TemperatureFit(1.0, None, value, g, h, passes + 1, False, note)
    return TemperatureFit(LOWEST, None, value, g, h, passes + 1, False, _SEPARATED)


def nll_pass(
    logits: Floats, labels: Labels, weights: Weights | None, offset: NDArray[np.float64] | None, b: float
) -> tuple[float, float, float, float]:
    """NLL, its first and second derivative by b, and the mean size of the numbers in the gradient, in one pass."""
    n, classes = logits.shape
    few = classes <= 64
    rows = max(64, (_CHUNK_FEW if few else _CHUNK_MANY) // classes)
    totals = np.zeros(4)
    for start in range(0, n, rows):
        part = logits[start : start + rows]
        y = labels[start : start + rows]
        w = None if weights is None else weights[start : start + rows]
        totals += _few_classes(part, y, w, offset, b) if few else _many_classes(part, y, w, offset, b)
    total = float(n) if weights is None else float(weights.sum())
    value, g, h, scale = (totals / total).tolist()
    return value, g, h, scale


def _few_classes(
    part: Floats, y: Labels, w: Weights | None, offset: NDArray[np.float64] | None, b: float
) -> NDArray[np.float64]:
    # Classes first: every reduction then runs along whole rows of memory, four times faster at ten classes.
    z = part.T.astype(np.float64, order="C")
    z -= z.max(axis=0)
    own = z[y, np.arange(len(y))]
    e = z * b
    if offset is not None:
        e += offset[:, None]
        own_offset = offset[y]
    np.exp(e, out=e)
    s = e.sum(axis=0)
    e *= z
    first = e.sum(axis=0) / s
    e *= z
    second = e.sum(axis=0) / s - first * first
    value = np.log(s) - b * own - (0 if offset is None else own_offset)
    difference = first - own
    return _weighted_sums(value, difference, second, w)


def _many_classes(
    part: Floats, y: Labels, w: Weights | None, offset: NDArray[np.float64] | None, b: float
) -> NDArray[np.float64]:
    z = part.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    own = z[np.arange(len(y)), y]
    e = z * b
    if offset is not None:
        e += offset
    np.exp(e, out=e)
    s = e.sum(axis=1)
    first = row_dots(e, z) / s
    z *= z
    second = row_dots(e, z) / s - first * first
    value = np.log(s) - b * own - (0 if offset is None else offset[y])
    return _weighted_sums(value, first - own, second, w)


def _weighted_sums(
    value: NDArray[np.float64], difference: NDArray[np.float64], second: NDArray[np.float64], w: Weights | None
) -> NDArray[np.float64]:
    columns = (value, difference, second, np.abs(difference))
    if w is None:
        return np.array([c.sum() for c in columns])
    return np.array([np.dot(w, c) for c in columns])


def _check(parameters: Parameters, classes: int) -> None:
    positive(parameters, "temperature", ())


def _steps(parameters: Parameters, classes: int) -> tuple[Step, ...]:
    return (Affine.scale(np.full(classes, 1.0 / float(parameters["temperature"]))),)


TEMPERATURE = Form("temperature", fit_temperature, _check, _steps, diagonal=True)
