"""The few kinds of steps that every calibrator is made of, each a function of logits (N, C) in numpy.

A method says its steps once: `Calibrator.logits` runs them, and export writes each kind as graph operators. A function
g_k of one probability gives log max(g_k(p_k), 1e-12): the softmax behind it is exactly the renormalisation, no
probability becomes 0, and a row of zeros becomes uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.softmax import FLOOR, floored_logits, log_p_and_rest, log_softmax, softmax
from calibrant.errors import DataError

Array = NDArray[np.float64]
LEAST_SQUARE = 1e-20  # of a feature vector's length: below, it points nowhere


@dataclass(frozen=True)
class Affine:
    """u -> A u + c with A a diagonal (C,) or a matrix (C, C)."""

    a: Array
    c: Array

    def __call__(self, u: Array) -> Array:
        out: Array = (u * self.a if self.diagonal else u @ self.a.T) + self.c
        return out

    @classmethod
    def scale(cls, a: Array) -> Affine:
        return cls(a, np.zeros(len(a)))

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


@dataclass(frozen=True)
class SubtractMax:
    """u -> u - max_k u_k."""

    def __call__(self, u: Array) -> Array:
        out: Array = u - u.max(axis=1, keepdims=True)
        return out


@dataclass(frozen=True)
class LogSoftmax:
    """u -> log softmax(u)."""

    def __call__(self, u: Array) -> Array:
        return log_softmax(u)


@dataclass(frozen=True)
class PiecewiseLinear:
    """log q_k, q_k = g_k(softmax(u)_k), g_k straight between the knots (x_kj, y_kj) and constant outside."""

    x: Sequence[Array]
    y: Sequence[Array]

    def __call__(self, u: Array) -> Array:
        p = softmax(u)
        columns = (np.interp(p[:, k], x, y) for k, (x, y) in enumerate(zip(self.x, self.y, strict=True)))
        return floored_logits(np.stack(list(columns), axis=1))


@dataclass(frozen=True)
class PiecewiseConstant:
    """log q_k, q_k = values_kj for the j with edges_k(j-1) <= softmax(u)_k < edges_kj; one value more than edges."""

    edges: Sequence[Array]
    values: Sequence[Array]

    def __call__(self, u: Array) -> Array:
        p = softmax(u)
        columns = (
            values[np.searchsorted(edges, p[:, k], side="right")]
            for k, (edges, values) in enumerate(zip(self.edges, self.values, strict=True))
        )
        return floored_logits(np.stack(list(columns), axis=1))


@dataclass(frozen=True)
class BetaMap:
    """log q_k = -softplus(-(a_k log p_k - b_k log(1 - p_k) + c_k)), p = softmax(u)."""

    a: Array
    b: Array
    c: Array

    def __call__(self, u: Array) -> Array:
        log_p, log_rest = log_p_and_rest(u)
        log_q: Array = -np.logaddexp(0.0, -(self.a * log_p - self.b * log_rest + self.c))
        return np.maximum(log_q, np.log(FLOOR))


@dataclass(frozen=True)
class MixtureMap:
    """log( sum_j w_j softmax(u / T_j) + rest )."""

    temperatures: tuple[float, ...]
    weights: tuple[float, ...]
    rest: float

    def __call__(self, u: Array) -> Array:
        parts = (w * softmax(u / t) for t, w in zip(self.temperatures, self.weights, strict=True))
        return floored_logits(sum(parts, start=np.full(u.shape, self.rest)))


@dataclass(frozen=True)
class Pool:
    """log( sum_j w_j softmax(branch_j(u)) + rest ), each branch a sequence of steps."""

    branches: tuple[tuple[Step, ...], ...]
    weights: tuple[float, ...]
    rest: float = 0.0

    def __call__(self, u: Array) -> Array:
        parts = (w * softmax(run(steps, u)) for steps, w in zip(self.branches, self.weights, strict=True))
        return floored_logits(sum(parts, start=np.full(u.shape, self.rest)))


@dataclass(frozen=True)
class Hinges:
    """u -> slope u + sum_j bends_j min(u - knots_j, 0), on gaps u <= 0 to the winner."""

    slope: float
    knots: Array
    bends: Array

    def __call__(self, u: Array) -> Array:
        out: Array = self.slope * u
        for knot, bend in zip(self.knots, self.bends, strict=True):
            out = out + bend * np.minimum(u - knot, 0.0)
        return out


@dataclass(frozen=True)
class ShapeScale:
    """u -> u exp(tanh(bias + entropy H + top max_k u_k)), u = log softmax, H its entropy."""

    bias: float
    entropy: float
    top: float

    def __call__(self, u: Array) -> Array:
        entropy, top = shape_of(u)
        out: Array = u * np.exp(np.tanh(self.bias + self.entropy * entropy + self.top * top))[:, None]
        return out


def shape_of(u: Array) -> tuple[Array, Array]:
    """Entropy of each row of log-probabilities, and the largest of them."""
    return -np.einsum("ij,ij->i", np.exp(u), u), u.max(axis=1)


@dataclass(frozen=True)
class DensityScale:
    """u -> u softplus(0) / softplus(slope (d - middle)), d how far features f (N, D) lie from the nearest centres.

    d is the mean of 1 - cos((f - mean) / spread, c_j) over the `nearest` closest centres c_j (M, D), of length 1 each.
    """

    mean: Array
    spread: Array
    centres: Array
    nearest: int
    middle: float
    slope: float

    def distances(self, features: NDArray[np.floating[Any]]) -> Array:
        found = []
        for start in range(0, len(features), 1024):
            x = (features[start : start + 1024].astype(np.float64) - self.mean) / self.spread
            cosine = (x @ self.centres.T) / np.sqrt(np.maximum((x**2).sum(axis=1, keepdims=True), LEAST_SQUARE))
            found.append(1.0 - -np.partition(-cosine, self.nearest - 1, axis=1)[:, : self.nearest].mean(axis=1))
        return np.concatenate(found) if found else np.zeros(0)

    def scales(self, features: NDArray[np.floating[Any]]) -> Array:
        """By which each row's logits are multiplied."""
        out: Array = np.log(2.0) / np.logaddexp(0.0, self.slope * (self.distances(features) - self.middle))
        return out

    def __call__(self, u: Array, features: NDArray[np.floating[Any]] | None = None) -> Array:
        checked_features(features, len(u), len(self.mean))
        assert features is not None  # as checked
        out: Array = u * self.scales(features)[:, None]
        return out


def checked_features(features: NDArray[np.floating[Any]] | None, rows: int, width: int) -> None:
    """Refuses what cannot be the features that a map of this width reads."""
    if features is None:
        raise DataError(
            "the calibrator reads the network's features, and these rows hold none",
            fix="make them with calibrant predict --features, or take another calibrator",
        )
    if features.ndim != 2 or len(features) != rows:
        raise DataError(f"features have shape {features.shape} for {rows} rows of logits")
    if features.shape[1] != width:
        raise DataError(
            f"features have {features.shape[1]} numbers a row, the calibrator reads {width}",
            fix="was it fitted on another model?",
        )
    if not np.isfinite(features).all():
        raise DataError("features contain numbers that are not finite")


Step = (
    Affine
    | SubtractMax
    | LogSoftmax
    | PiecewiseLinear
    | PiecewiseConstant
    | BetaMap
    | MixtureMap
    | Hinges
    | ShapeScale
    | DensityScale
    | Pool
)


def run(steps: Sequence[Step], u: Array, features: NDArray[np.floating[Any]] | None = None) -> Array:
    """`features` (N, D) for the one kind of step that reads them."""
    for step in steps:
        u = step(u, features) if isinstance(step, DensityScale) else step(u)
    return u
