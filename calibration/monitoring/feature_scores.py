"""A row of features as a few numbers that a log can keep and a test can follow: where it lies, and how far outside.

With mu and orthonormal a_1 ... a_K: s_k = a_k (x - mu), and r = log(|x - mu|^2 - sum_k s_k^2), the squared distance
from the subspace (Hotelling's T^2 and Q; Jackson and Mudholkar 1979). Axes are the leading principal components of rows
that count as normal, or random where there are none; mu is then 0. A shift that the logits do not see, since it lies
where the classifier has no weights, moves some s_k, or r, or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

AXES = 8
MOST_ROWS = 10_000  # of a baseline: more say little and take seconds
_PASSES = 4  # of the power iteration; axes that are not quite the leading ones are as good
_FLOOR = 1e-5  # of |x - mu|^2: what float32 leaves of a difference that is 0

Features = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Directions:
    mean: NDArray[np.float32]  # (D,)
    axes: NDArray[np.float32]  # (K, D), orthonormal

    @property
    def scores_a_row(self) -> int:
        return len(self.axes) + 1

    @classmethod
    def at_random(cls, width: int, seed: int) -> Directions:
        """The same in every process that serves the file."""
        return cls(np.zeros(width, np.float32), _start(width, seed).T.astype(np.float32))

    @classmethod
    def of(cls, features: Features, seed: int) -> Directions:
        """(N, D). By block power iteration; signs are set, so that all workers agree."""
        mean = features.mean(axis=0, dtype=np.float64).astype(np.float32)
        centred, axes = features - mean, _start(features.shape[1], seed)
        for _ in range(_PASSES):
            axes = np.linalg.qr(centred.T @ (centred @ axes))[0]
        axes *= np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)
        return cls(mean, axes.T.astype(np.float32))

    def scores(self, features: Features) -> NDArray[np.float32]:
        """(N, K + 1) of (N, D); NaN in rows that hold what is no number."""
        with np.errstate(all="ignore"):
            centred = features.astype(np.float32, copy=False) - self.mean
            along = (centred @ self.axes.T).astype(np.float64)
            total = np.einsum("nd,nd->n", centred, centred).astype(np.float64)
            outside = np.maximum(total - (along**2).sum(axis=1), _FLOOR * total)
            scores = np.column_stack([along, np.log(np.maximum(outside, 1e-30))]).astype(np.float32)
        scores[~np.isfinite(scores).all(axis=1)] = np.nan
        return scores


def _start(width: int, seed: int) -> NDArray[np.float64]:
    """(D, min(K, D)) orthonormal columns."""
    drawn = np.random.default_rng(seed).normal(size=(width, min(AXES, width)))
    return np.asarray(np.linalg.qr(drawn)[0])
