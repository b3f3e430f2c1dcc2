"""Whether the features of served rows have drifted, which confidences need not show; needs no labels.

What is followed of a row (`feature_scores`): each s_k, r, and the squared Mahalanobis norm of the s_k. Each is put into
bins between quantiles of rows that count as normal, and is a categorical variable of `drift_alarm` with its part of
alpha (Bonferroni): so the chance of a false alarm within the horizon is at most alpha for all of them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.drift_alarm import DriftAlarm, DriftSettings

Array = NDArray[np.float64]
FEWEST_ROWS = 1000  # of scores that count as normal; of fewer the error would hide all but the coarsest drift
QUANTILES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)  # closer at the ends: drift shows there first


@dataclass(frozen=True)
class NormalScores:
    """How the scores of rows that count as normal are spread: mean and scale of each s_k, and of each variable the
    bins and how many rows fell into them."""

    centre: Array  # (K,)
    scale: Array  # (K,)
    edges: tuple[Array, ...]
    counts: tuple[Array, ...]

    @property
    def rows(self) -> int:
        return int(self.counts[0].sum())

    @classmethod
    def of(cls, scores: NDArray[np.floating[Any]]) -> NormalScores:
        """(N, K + 1). The axes must not have been fitted on these rows: they would lie too near to them."""
        along = scores[:, :-1].astype(np.float64)
        spread = along.std(axis=0)
        bare = cls(along.mean(axis=0), np.where(spread > 0, spread, 1.0), (), ())
        edges, counts = [], []
        for values in bare.variables(scores).T:
            # No bins for what was not seen: how rare it is nobody knows, and a factor of 15 was a false alarm.
            found = np.unique(np.quantile(values, QUANTILES))
            edges.append(found)
            counts.append(np.bincount(_bins(values, found), minlength=len(found) + 1).astype(np.float64))
        return replace(bare, edges=tuple(edges), counts=tuple(counts))

    def variables(self, scores: NDArray[np.floating[Any]]) -> Array:
        """(N, K + 2): the s_k, r, and T^2 = sum_k ((s_k - mean_k) / scale_k)^2."""
        given = scores.astype(np.float64)
        distance = (((given[:, :-1] - self.centre) / self.scale) ** 2).sum(axis=1)
        return np.column_stack([given, distance])

    def categories(self, scores: NDArray[np.floating[Any]]) -> list[NDArray[np.int64]]:
        """Of each variable the bin of each row."""
        return [_bins(values, edges) for values, edges in zip(self.variables(scores).T, self.edges, strict=True)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "centre": self.centre.tolist(), "scale": self.scale.tolist(),
            "edges": [e.tolist() for e in self.edges], "counts": [c.tolist() for c in self.counts],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NormalScores:
        centre, scale = (np.asarray(values[name], np.float64) for name in ("centre", "scale"))
        edges, counts = (tuple(np.asarray(v, np.float64) for v in values[name]) for name in ("edges", "counts"))
        return cls(centre, scale, edges, counts)


def _bins(values: Array, edges: Array) -> NDArray[np.int64]:
    return np.searchsorted(edges, values, side="right").astype(np.int64)


@dataclass(frozen=True)
class FeatureWatch:
    """`scores`: of a row. `normal`: without it the first rows count as normal."""

    scores: int
    normal: NormalScores | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"scores": self.scores, "normal": None if self.normal is None else self.normal.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> FeatureWatch:
        normal = values["normal"]
        return cls(int(values["scores"]), None if normal is None else NormalScores.from_dict(normal))


@dataclass
class FeatureAlarm:
    """Of scores in order of time; rows without, or with what is no number, are left out."""

    watch: FeatureWatch
    settings: DriftSettings = field(default_factory=DriftSettings)
    normal: NormalScores | None = field(init=False)
    rows: int = 0
    fired_at: int | None = None
    raised_at: int | None = None  # where it fired first, of those since it was last off
    _alarms: list[DriftAlarm] = field(default_factory=list)
    _first: list[NDArray[np.float32]] = field(default_factory=list)  # until they are what is normal
    _pending: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        self.normal = self.watch.normal
        if self.normal is not None:
            self._begin(self.normal)

    @property
    def needs(self) -> int:
        """Rows before it can say anything."""
        return max(self.settings.learn, FEWEST_ROWS) if self.watch.normal is None else 0

    @property
    def log_threshold(self) -> float:
        """Of one of the variables."""
        return DriftAlarm(1, self._part).log_threshold

    @property
    def _part(self) -> DriftSettings:
        return replace(self.settings, alpha=self.settings.alpha / (self.watch.scores + 1))

    @property
    def log_evidence(self) -> float:
        """Of the variable that speaks most for a drift."""
        return max((alarm.log_evidence for alarm in self._alarms), default=-math.inf)

    @property
    def on(self) -> bool:
        return self.fired_at is not None and self.rows - self.fired_at < self.settings.horizon

    def add(self, scores: NDArray[np.float32]) -> bool:
        """(N, K + 1). True if it fired."""
        if scores.shape[1] != self.watch.scores:  # of another start of the server
            return False
        known = scores[np.isfinite(scores).all(axis=1)]
        waiting = known if self._pending is None else np.concatenate([self._pending, known])
        size, fired = self.settings.block, False
        whole = len(waiting) - len(waiting) % size
        for start in range(0, whole, size):
            fired |= self._step(waiting[start : start + size])
        self._pending = waiting[whole:].copy()
        return fired

    def _step(self, block: NDArray[np.float32]) -> bool:
        self.rows += len(block)
        if self.normal is None:
            self._first.append(block)
            if self.rows >= self.needs:
                self.normal = NormalScores.of(np.concatenate(self._first))
                self._first = []
                self._begin(self.normal)
            return False
        # Each one sees every block, also where another has fired.
        told = zip(self._alarms, self.normal.categories(block), strict=True)
        fired = any([alarm.add(bins) for alarm, bins in told])
        if fired:
            self.raised_at = self.raised_at if self.on else self.rows
            self.fired_at = self.rows
        return fired

    def _begin(self, normal: NormalScores) -> None:
        self._alarms = [DriftAlarm.against(counts, self._part) for counts in normal.counts]
