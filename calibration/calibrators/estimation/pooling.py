"""Shares of several maps in one mixture, by cross-validated likelihood.

q = sum_j w_j p_j, p_j the probabilities of map j. Each row is predicted by maps that were fitted on other rows; w
maximises  sum_i v_i log q_i(y_i) + m sum_j w0_j log w_j,  v_i the row weights: m pseudo-rows that follow the shares w0
hold the weights while rows are few. The sum is concave; expectation-maximisation finds its top.

A linear pool, because its loss in a row is at most log(1 / w_j) above that of map j: no member can do it much harm.
(Stacking: Wolpert 1992; of densities by their likelihood: Smyth and Wolpert 1999. Differs: the pseudo-rows.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.calibrators.steps import Step, run
from calibrant.calibration.calibrators.temperature import steadied
from calibrant.calibration.inputs import Floats, Labels, Weights
from calibrant.calibration.softmax import floored_logits, log_softmax

Vector = NDArray[np.float64]
Fold = Callable[[Floats, Labels, Weights | None], Sequence[Step]]
PSEUDO_ROWS = 20.0
FOLDS = 5
_ENOUGH = 2000
_SPREAD_OF_LOG_T = 0.1


@dataclass(frozen=True)
class HeldOut:
    """Losses (members, rows) of rows that were held out, their row weights, and which rows they are.

    `log_p`: of each member the log-probabilities of all classes in every `step`-th of them.
    """

    losses: Vector
    weights: Vector
    rows: NDArray[np.int64]
    log_p: tuple[NDArray[np.float32], ...] = ()
    step: int = 1

    def mean(self) -> Vector:
        found: Vector = self.losses @ self.weights / self.weights.sum()
        return found

    def and_also(self, other: HeldOut) -> HeldOut:
        """With the losses of more members on the same rows."""
        if not len(other.losses):
            return self
        losses = np.concatenate([self.losses, other.losses])
        return HeldOut(losses, self.weights, self.rows, self.log_p + other.log_p, self.step)

    def pooled(self, shares: Vector) -> Vector:
        """Loss of each row under the mixture."""
        least = self.losses.min(axis=0)
        out: Vector = least - np.log(np.maximum(shares @ np.exp(least - self.losses), 1e-300))
        return out

    def temperature(self, shares: Vector, uniform: float, labels: Labels, *, weighted: bool) -> float:
        """Of the mixture with this share for the uniform distribution, at most 1: a pool errs to that side. `labels`
        of all rows, held out or not; where few were, the prior holds T more."""
        q = sum(share * np.exp(log_p) for share, log_p in zip(shares, self.log_p, strict=True) if share)
        log_q = floored_logits((1 - uniform) * np.asarray(q, np.float64) + uniform / q.shape[1])
        weights = self.weights[:: self.step] if weighted else None
        spread = _SPREAD_OF_LOG_T * float(np.sqrt(len(self.rows) / len(labels)))
        return min(1.0, steadied(log_q, labels[self.rows[:: self.step]], weights, prior=(0.0, spread)))


def folds_of(rows: int, folds: int, seed: int, tried: int | None = None) -> list[NDArray[np.bool_]]:
    """Masks of the rows that are held out, one fold after another."""
    fold = np.random.default_rng(seed).permutation(rows) % folds
    return [fold == f for f in range(folds if tried is None else tried)]


def folds_worth(rows: int, *, heavy: bool) -> int:
    """How many of five folds are held out in turn: until 2,000 rows have been, one where a fit takes long."""
    return 1 if heavy else min(FOLDS, max(1, -(-_ENOUGH * FOLDS // rows)))


def sampling_step(rows: int) -> int:
    """Every so many of held-out rows make as many as are enough."""
    return -(-rows // _ENOUGH)


def label_losses(zeta: Vector, labels: Labels) -> Vector:
    found: Vector = -log_softmax(zeta)[np.arange(len(labels)), labels]
    return found


def held_out(
    members: Sequence[Fold], logits: Floats, labels: Labels, weights: Weights | None, masks: Sequence[NDArray[np.bool_]]
) -> HeldOut:
    """Each member fitted without a fold, and its losses on it."""
    n = len(labels)
    w = np.ones(n) if weights is None else weights * (n / weights.sum())
    parts, rows = [], []
    for test in masks:
        train = ~test
        some = None if weights is None else weights[train]
        if some is not None and not some.any():
            continue
        z = logits[test].astype(np.float64)
        parts.append([label_losses(run(m(logits[train], labels[train], some), z), labels[test]) for m in members])
        rows.append(np.flatnonzero(test))
    if not parts:
        return HeldOut(np.zeros((len(members), 0)), np.zeros(0), np.zeros(0, np.int64))
    index = np.concatenate(rows)
    return HeldOut(np.concatenate([np.stack(p) for p in parts], axis=1), w[index], index)


def shares(found: HeldOut, prior: Vector, pseudo_rows: float = PSEUDO_ROWS) -> Vector:
    """w above; `prior` are the shares that the pseudo-rows follow."""
    least = found.losses.min(axis=0) if found.losses.size else found.losses.sum(axis=0)
    p = np.exp(least - found.losses)
    w: Vector = prior / prior.sum()
    anchor = pseudo_rows * w
    for _ in range(500):
        q = np.maximum(w @ p, 1e-300)
        fresh = w * (p @ (found.weights / q)) + anchor
        fresh /= fresh.sum()
        moved = float(np.abs(fresh - w).max())
        w = fresh
        if moved < 1e-6:
            break
    return w
