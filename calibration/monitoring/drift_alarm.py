"""Whether a categorical variable of the stream, such as the predicted class, has drifted; needs no labels.

The e-detector of `calibration_alarm` on blocks of rows against a reference distribution, with the distribution seen
shortly before as the alternative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DriftSettings:
    alpha: float = 0.001
    horizon: int = 100_000
    learn: int = 2000
    block: int = 50
    memory: float = 0.9  # of the alternative, per block


@dataclass
class DriftAlarm:
    """Drift of a categorical variable from a reference, without labels, in blocks of `block` rows.

    Without a reference the first `learn` rows are it, or 20 a category if that is more. Such a reference is off by
    chi2(C - 1) / (2 n) nats a row; twice the 99 % quantile of that is taken off the evidence, so that its error does
    not add up to an alarm.
    """

    categories: int
    settings: DriftSettings = field(default_factory=DriftSettings)
    reference: Array | None = None
    rows: int = 0
    fired_at: int | None = None
    raised_at: int | None = None  # where it fired first, of those since it was last off
    _log_m: float = -math.inf
    _slack: float = 0.0  # nats a row
    _learned: Array = field(init=False)
    _recent: Array = field(init=False)
    _pending: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._learned = np.zeros(self.categories)
        self._recent = np.zeros(self.categories)

    @classmethod
    def against(cls, counts: Array, settings: DriftSettings) -> DriftAlarm:
        """With a reference from so many rows of each category, whose error is allowed for as if it were learned."""
        alarm = cls(len(counts), settings)
        alarm._refer_to(counts)
        return alarm

    @property
    def needs(self) -> int:
        """Rows before it can say anything: those of the reference."""
        return max(self.settings.learn, 20 * self.categories)

    @property
    def ready(self) -> bool:
        return self.reference is not None

    @property
    def log_threshold(self) -> float:
        return math.log(self.settings.horizon / self.settings.block / self.settings.alpha)

    @property
    def log_evidence(self) -> float:
        return self._log_m

    @property
    def on(self) -> bool:
        return self.fired_at is not None and self.rows - self.fired_at < self.settings.horizon

    def add(self, values: NDArray[np.integer[Any]]) -> bool:
        """(N,) categories in order of time. True if it fired."""
        self._pending += np.asarray(values).tolist()
        fired = False
        while len(self._pending) >= self.settings.block:
            chunk, self._pending = self._pending[: self.settings.block], self._pending[self.settings.block :]
            fired |= self._step(np.bincount(chunk, minlength=self.categories).astype(np.float64))
        return fired

    def _step(self, counts: Array) -> bool:
        self.rows += int(counts.sum())
        if self.reference is None:
            self._learned += counts
            if self._learned.sum() >= self.needs:
                self._refer_to(self._learned)
            return False
        reference = self.reference
        seen = self._recent.sum()
        fired = False
        if seen >= self.settings.block:
            # Pulled half way to the reference: the estimate has noise of its own, and the reference too.
            q = 0.5 * reference + 0.5 * (self._recent + self.settings.block * reference) / (seen + self.settings.block)
            log_e = float((counts * np.log(q / reference)).sum()) - self._slack * counts.sum()
            self._log_m = float(np.logaddexp(0.0, self._log_m)) + log_e
            if self._log_m >= self.log_threshold:
                self.raised_at = self.raised_at if self.on else self.rows
                fired, self.fired_at, self._log_m = True, self.rows, -math.inf
        self._recent = self.settings.memory * self._recent + counts
        return fired

    def _refer_to(self, counts: Array) -> None:
        # Half a row in every category: what was not seen in the first rows is not impossible.
        self.reference = (counts + 0.5) / (counts + 0.5).sum()
        freedom = self.categories - 1
        self._slack = (freedom + 2.33 * math.sqrt(2 * freedom)) / float(counts.sum())
