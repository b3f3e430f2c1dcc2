"""Minimising a penalised multinomial log-loss over the entries of an affine map.

F(t) = mean_i w_i CE(softmax(u_i(t) + o), y_i) + sum_j s_j (t_j - t0_j)^2, u linear in t, so F is convex.
Newton with the exact Hessian and step halving where that is affordable, else L-BFGS. Directions that softmax cannot see
(the same vector added to every row of A) carry no gradient; a ridge at rounding level keeps the solve defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.inputs import Labels, Weights
from calibrant.calibration.softmax import softmax

Vector = NDArray[np.float64]
Rows = NDArray[Any]  # float64 or float32
NEWTON_PARAMETERS = 1000  # above, the Hessian takes longer than many gradients
_CHUNK_NUMBERS = 1 << 20
_FEW, _FEW_NUMBERS = 64, 1 << 16  # classes up to which they are laid out one after another; numbers in flight then


@dataclass(frozen=True)
class Problem:
    """x (N, C) inputs, in whose precision passes are. `full`: t is (C, C + 1), rows of A and c; else (w, b) or w."""

    x: Rows
    labels: Labels
    weights: Weights  # sum to one
    offset: Vector
    full: bool
    bias: bool

    @classmethod
    def make(
        cls,
        x: Rows,
        y: Labels,
        weights: Weights | None,
        offset: Vector | None,
        full: bool,
        bias: bool,
    ) -> Problem:
        w = np.full(len(y), 1.0 / len(y)) if weights is None else weights / weights.sum()
        return cls(x, y, w, np.zeros(x.shape[1]) if offset is None else offset, full, bias)

    @classmethod
    def diagonal_map(cls, x: Rows, y: Labels, weights: Weights | None, offset: Vector | None, *, bias: bool) -> Problem:
        return cls.make(x, y, weights, offset, False, bias)

    @classmethod
    def full_map(cls, x: Rows, y: Labels, weights: Weights | None, offset: Vector | None) -> Problem:
        return cls.make(x, y, weights, offset, True, True)

    def outputs(self, t: Vector, x: Rows) -> Vector:
        c = x.shape[1]
        s = t.astype(x.dtype, copy=False)
        shift = self.offset.astype(x.dtype, copy=False)
        if self.full:
            table = s.reshape(c, c + 1)
            u: Vector = x @ table[:, :-1].T
            u += table[:, -1] + shift
            return u
        u = x * s[:c]
        u += shift + s[c:] if self.bias else shift
        return u

    def value_and_gradient(self, t: Vector, hessian: bool = False) -> tuple[float, Vector, Vector | None]:
        c = self.x.shape[1]
        if c <= _FEW and not hessian:
            return *self._few_classes(t), None
        value, gradient = 0.0, np.zeros(len(t))
        second = np.zeros((len(t), len(t))) if hessian else None
        width = len(t) if hessian and self.full else c
        rows = max(64, _CHUNK_NUMBERS // width)
        for start in range(0, len(self.labels), rows):
            part = slice(start, start + rows)
            x, y, w = self.x[part], self.labels[part], self.weights[part]
            u = self.outputs(t, x)
            u -= u.max(axis=1, keepdims=True)
            here = np.arange(len(y))
            own = u[here, y]
            np.exp(u, out=u)
            total = u.sum(axis=1)
            value += float(np.dot(w, np.log(total) - own))
            u /= total[:, None]
            if second is not None:
                self._add_hessian(second, u, x, w)
            u[here, y] -= 1.0
            u *= w[:, None].astype(u.dtype, copy=False)
            if self.full:
                table = gradient.reshape(c, c + 1)
                table[:, :-1] += u.T @ x
                table[:, -1] += u.sum(axis=0)
            else:
                gradient[:c] += np.einsum("ij,ij->j", u, x)
                if self.bias:
                    gradient[c:] += u.sum(axis=0)
        return value, gradient, second

    @cached_property
    def _by_class(self) -> Rows:
        return np.ascontiguousarray(self.x.T)

    def _few_classes(self, t: Vector) -> tuple[float, Vector]:
        """Classes first: maxima and sums over them then run along whole rows of memory."""
        c, n = self._by_class.shape
        value, gradient = 0.0, np.zeros(len(t))
        s, shift = t.astype(self.x.dtype, copy=False), self.offset.astype(self.x.dtype, copy=False)[:, None]
        for start in range(0, n, _FEW_NUMBERS // c):
            part = slice(start, start + _FEW_NUMBERS // c)
            x, y, w = self._by_class[:, part], self.labels[part], self.weights[part]
            if self.full:
                table = s.reshape(c, c + 1)
                u = table[:, :-1] @ x
                u += table[:, -1:] + shift
            else:
                u = x * s[:c, None]
                u += shift + s[c:, None] if self.bias else shift
            u -= u.max(axis=0)
            here = np.arange(len(y))
            own = u[y, here]
            np.exp(u, out=u)
            total = u.sum(axis=0)
            value += float(np.dot(w, np.log(total) - own))
            u *= w.astype(u.dtype, copy=False) / total
            u[y, here] -= w.astype(u.dtype, copy=False)
            if self.full:
                sums = gradient.reshape(c, c + 1)
                sums[:, :-1] += u @ x.T
                sums[:, -1] += u.sum(axis=1)
            else:
                gradient[:c] += np.einsum("ij,ij->i", u, x)
                if self.bias:
                    gradient[c:] += u.sum(axis=1)
        return value, gradient

    def curvature(self, t: Vector) -> Vector:
        """The diagonal of the Hessian of the mean loss at t."""
        c = self.x.shape[1]
        first, second = np.zeros((c, c)) if self.full else np.zeros(c), np.zeros(c)
        rows = max(64, _CHUNK_NUMBERS // c)
        for start in range(0, len(self.labels), rows):
            part = slice(start, start + rows)
            p = softmax(self.outputs(t, self.x[part])).astype(self.x.dtype, copy=False)
            h, squared = p * (1 - p) * self.weights[part, None].astype(p.dtype), self.x[part] ** 2
            first += h.T @ squared if self.full else np.einsum("ij,ij->j", h, squared)
            second += h.sum(axis=0)
        if self.full:
            return np.concatenate([first, second[:, None]], axis=1).reshape(-1)
        return np.concatenate([first, second]) if self.bias else first

    def _add_hessian(self, second: Vector, p: Vector, x: Vector, w: Vector) -> None:
        c = x.shape[1]
        root = np.sqrt(w)[:, None]
        if self.full:
            wide = np.concatenate([x, np.ones((len(x), 1))], axis=1)
            product = ((p * root)[:, :, None] * wide[:, None, :]).reshape(len(x), -1)
            second -= product.T @ product
            for j in range(c):
                block = slice(j * (c + 1), (j + 1) * (c + 1))
                second[block, block] += (wide * (p[:, j] * w)[:, None]).T @ wide
            return
        features = np.concatenate([p * x, p], axis=1) if self.bias else p * x
        features = features * root
        second -= features.T @ features
        k = np.arange(c)
        second[k, k] += w @ (p * x * x)
        if self.bias:
            second[k, k + c] += w @ (p * x)
            second[k + c, k] += w @ (p * x)
            second[k + c, k + c] += w @ p


@dataclass(frozen=True)
class Minimum:
    parameters: Vector
    objective: float
    gradient: float  # largest component
    steps: int
    converged: bool

    def notes(self) -> dict[str, Any]:
        return {
            "objective": self.objective, "gradient": self.gradient, "steps": self.steps, "converged": self.converged
        }  # fmt: skip


def minimise(
    problem: Problem, start: Vector, penalty: Vector, *, centre: Vector | None = None, tolerance: float = 1e-9
) -> Minimum:
    """`penalty`: s_j above, `centre`: t0 (zeros). Ends when the largest gradient component is below the tolerance."""
    t0 = np.zeros(len(start)) if centre is None else centre
    if len(start) > NEWTON_PARAMETERS:
        from calibrant.calibration.calibrators.estimation.quasi_newton import minimise_scaled

        return minimise_scaled(problem, start, penalty, centre=t0, tolerance=max(tolerance, 1e-6))
    t = start.astype(np.float64, copy=True)
    steps, damping = 0, 0.0

    def objective(at: Vector) -> float:
        return problem.value_and_gradient(at)[0] + float(penalty @ (at - t0) ** 2)

    while True:
        value, gradient, second = problem.value_and_gradient(t, hessian=True)
        assert second is not None  # noqa: S101
        value += float(penalty @ (t - t0) ** 2)
        gradient = gradient + 2 * penalty * (t - t0)
        size = float(np.abs(gradient).max())
        if size <= tolerance or steps >= 200:
            return Minimum(t, value, size, steps, size <= tolerance)
        second[np.diag_indices_from(second)] += 2 * penalty
        scale = float(np.trace(second)) / len(t)
        second[np.diag_indices_from(second)] += scale * max(1e-13, damping)
        step = _solve(second, gradient)
        length, slope = 1.0, float(gradient @ step)
        while length > 1e-8:
            trial = t - length * step
            if objective(trial) <= value - 1e-4 * length * slope:
                break
            length *= 0.5
        else:
            if damping > 1e-3 or size < 1e-7:  # rounding of the objective hides any further progress
                return Minimum(t, value, size, steps, size <= 1e-6)
            damping = max(10 * damping, 1e-9)
            continue
        t = t - length * step
        steps += 1


def _solve(second: Vector, gradient: Vector) -> Vector:
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, lstsq

    try:
        solution: Vector = cho_solve(cho_factor(second, lower=True), gradient)
    except LinAlgError:
        solution = lstsq(second, gradient)[0]
    return solution
