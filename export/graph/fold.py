"""The algebra behind a deployed head: what of  cal(g(z) / tau) - shift  is affine, and folds into weights.

    W' = A diag(1/tau) W        b' = A diag(1/tau) b + c - shift

z = W f + b: the network's logits; g: VACE's gauge; tau: class temperatures; u -> A u + c: an affine calibrator;
shift = a log(pi_train / pi_target). Everything is composed in float64 and rounded to float32 once.

A tail is written as a list of steps. Neighbouring affine steps merge into one, and the first one merges into the
classifier, so that temperature, vector and matrix scaling, class temperatures and the prior cost no node at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import log_softmax
from calibrant.errors import ModelError, did_you_mean

Array = NDArray[np.float64]
LOST = 5e-6  # of a bias, by which it may differ after folding and undoing
SMALL = 1e-20  # a scale that leaves the range of float32 weights intact is larger, and smaller than its inverse
GAUGES = ("none", "mean", "max", "logsoftmax")


class FittedCalibrator(Protocol):
    """What export asks of `calibrant.calibration.Calibrator`."""

    @property
    def method(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    def as_affine(self) -> tuple[Array, Array] | None: ...
    def logits(self, logits: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]: ...
    def to_json(self) -> str: ...


@dataclass(frozen=True)
class Affine:
    """u -> A u + c with A a diagonal (C,) or a matrix (C, C)."""

    a: Array
    c: Array

    @property
    def diagonal(self) -> bool:
        return self.a.ndim == 1

    @property
    def identity(self) -> bool:
        return self.diagonal and bool(np.all(self.a == 1) and np.all(self.c == 0))

    def after(self, first: Affine) -> Affine:
        """self(first(u)): A2 (A1 u + c1) + c2."""
        if self.diagonal and first.diagonal:
            return Affine(self.a * first.a, self.a * first.c + self.c)
        a1 = np.diag(first.a) if first.diagonal else first.a
        if self.diagonal:
            return Affine(self.a[:, None] * a1, self.a * first.c + self.c)
        return Affine(self.a @ a1, self.a @ first.c + self.c)

    def onto(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """The classifier W f + b followed by this map."""
        if self.diagonal:
            return self.a[:, None] * weight, self.a * bias + self.c
        return self.a @ weight, self.a @ bias + self.c

    def stored(self, weight: Array, bias: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The same in float32, rounded once; a diagonal map without a float64 copy of the whole in between."""
        if not self.diagonal:
            folded, shifted = self.onto(weight, bias)
            return folded.astype(np.float32), shifted.astype(np.float32)
        out = np.empty(weight.shape, np.float32)
        np.multiply(self.a[:, None], weight, out=out, casting="same_kind", dtype=np.float64)
        return out, (self.a * bias + self.c).astype(np.float32)

    def recoverable(self, bias: Array) -> bool:
        """Does the classifier come back out of what is stored in float32?

        Not out of a matrix, nor where a vector's scale is 0 or so small that the digits of the bias drown in c.
        """
        if not self.diagonal or not np.all((np.abs(self.a) > SMALL) & (np.abs(self.a) < 1 / SMALL)):
            return False
        # a weight keeps its digits under a scale; only the bias has c added, in which they may drown
        stored = (self.a * bias + self.c).astype(np.float32).astype(np.float64)
        return bool(np.all(np.abs((stored - self.c) / self.a - bias) <= LOST * np.maximum(np.abs(bias), 1.0)))


@dataclass(frozen=True)
class SubtractMax:
    """u -> u - max_k u_k: the gauge that keeps the winner (VACE, gauge max)."""


@dataclass(frozen=True)
class LogSoftmax:
    """u -> log softmax(u)."""


@dataclass(frozen=True)
class PiecewiseMap:
    """log q_k, q_k = g_k(softmax(u)_k), with g_k constant or linear between sorted knots of class k.

    For p in segment i = number of knots <= p (right-continuous):  g = start + slope * (p - origin).
    """

    knots: Array  # (C, K), padded with 2.0
    start: Array  # (C, K + 1)
    slope: Array | None = None  # (C, K + 1); None: constant
    origin: Array | None = None  # (C, K + 1)


@dataclass(frozen=True)
class BetaMap:
    """log q_k = -softplus(-(a_k log p_k - b_k log(1 - p_k) + c_k)), p = softmax(u)."""

    a: Array
    b: Array
    c: Array


@dataclass(frozen=True)
class MixtureMap:
    """log( sum_j w_j softmax(u / T_j) + rest )."""

    temperatures: tuple[float, ...]
    weights: tuple[float, ...]
    rest: float


Step = Affine | SubtractMax | LogSoftmax | PiecewiseMap | BetaMap | MixtureMap


def gauge_steps(gauge: str, classes: int) -> list[Step]:
    if gauge == "none":
        return []
    if gauge == "mean":
        return [Affine(np.eye(classes) - 1.0 / classes, np.zeros(classes))]
    if gauge == "max":
        return [SubtractMax()]
    if gauge == "logsoftmax":
        return [LogSoftmax()]
    raise ModelError(f'unknown gauge "{gauge}"', fix=did_you_mean(gauge, GAUGES))


def apply_gauge(z: Array, gauge: str) -> Array:
    """g(z) in numpy."""
    if gauge == "mean":
        return np.asarray(z - z.mean(1, keepdims=True))
    if gauge == "logsoftmax":
        return log_softmax(z)
    return z - z.max(1, keepdims=True) if gauge == "max" else z


def tail_steps(
    classes: int,
    *,
    class_temperatures: Sequence[float] | Array | None = None,
    gauge: str = "none",
    calibrator: FittedCalibrator | None = None,
    shift: Array | None = None,
) -> list[Step]:
    """What happens between the network's logits and the deployed ones, merged as far as it goes."""
    from calibrant.export.graph.calibrator_steps import calibrator_steps

    found: list[Step] = gauge_steps(gauge, classes)
    if class_temperatures is not None:
        taus = np.asarray(class_temperatures, np.float64)
        check_temperatures(taus, classes)
        found.append(Affine(1.0 / taus, np.zeros(classes)))
    if calibrator is not None:
        found += calibrator_steps(calibrator, classes)
    if shift is not None:
        found.append(Affine(np.ones(classes), -np.asarray(shift, np.float64)))
    return merge(found)


def merge(steps: Sequence[Step]) -> list[Step]:
    """Joins neighbouring affine steps and leaves out those that do nothing."""
    merged: list[Step] = []
    for step in steps:
        if isinstance(step, Affine) and step.identity:
            continue
        if isinstance(step, Affine) and merged and isinstance(merged[-1], Affine):
            merged[-1] = step.after(merged[-1])
        else:
            merged.append(step)
    return [s for s in merged if not (isinstance(s, Affine) and s.identity)]


def check_temperatures(taus: Array, classes: int) -> None:
    if taus.shape != (classes,) or not np.all(np.isfinite(taus)) or np.any(taus <= 0):
        raise ModelError(f"class temperatures must be {classes} positive numbers, got {taus.shape} {taus.tolist()[:5]}")
