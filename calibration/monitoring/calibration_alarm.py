"""Whether labels still agree with the probabilities that were served.

A Shiryaev-Roberts e-detector (Shin, Ramdas and Rinaldo 2022). If p_i is the true distribution of the label, then for
any other distribution q_i that was fixed before the label came

    e_i = q_i(y_i) / p_i(y_i)

has expectation 1, so M_t = (1 + M_{t-1}) e_t minus t is a martingale, and the chance that M reaches h / alpha within h
steps is at most alpha, wherever one looks. Steps are blocks of rows, e_t the product over a block. The accuracy may
fall and no alarm be raised: that is right where the confidence falls with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.monitoring.baseline import Baseline, KnownRows, class_bias
from calibrant.calibration.softmax import log_softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CalibrationSettings:
    alpha: float = 0.001  # a baseline is an estimate, which costs a factor of up to ten on real data
    horizon: int = 5000
    sharpness: tuple[float, ...] = (0.35, 0.5, 0.7, 1.4, 2.0)
    memories: tuple[int, ...] = (150, 500)
    block: int = 25
    prior_rows: float = 60.0
    fewest: tuple[int, int] = (500, 25)  # rows of a baseline: in all and a class
    full: tuple[int, int] = (1000, 50)  # from where on its error costs little
    settle: int = 5000
    lag: int = 500

    def fewest_rows(self, classes: int) -> int:
        """That a baseline needs, of many classes no more than a learned one keeps."""
        return min(max(self.fewest[0], self.fewest[1] * classes), self.settle)

    def full_rows(self, classes: int) -> int:
        return max(self.full[0], self.full[1] * classes)


@dataclass
class CalibrationAlarm:
    """Fires with a chance of at most `alpha` within `horizon` labelled rows of a model that stays as it was.

    Alternatives: sharper or flatter (`sharpness`), and a class bias learned from the rows just before, over two
    memories. The null is a baseline, so that the misfit that a real model is deployed with is not taken for a change:
    a given one, or one learned from the first labelled rows, as soon as there are `fewest_rows`. Until then the null is
    p itself, against the sharper and flatter alternatives only; or nothing is tested, where the rows at the `beginning`
    of what is to be learned were given: p may be off on them. A learned baseline is fitted again as labels come, to
    those at least `lag` rows old, until it knows `settle` of them or there was an alarm. What a baseline may be off by
    is taken off the evidence.
    """

    settings: CalibrationSettings = field(default_factory=CalibrationSettings)
    baseline: Baseline | None = None
    beginning: KnownRows | None = None  # of a baseline to be learned
    rows: int = 0
    fired_at: int | None = None  # the row of the last alarm
    raised_at: int | None = None  # where it fired first, of those since it was last off
    _log_m: Array = field(init=False)
    _known: list[KnownRows] = field(default_factory=list)  # that the baseline was learned from
    _newer: list[KnownRows] = field(default_factory=list)
    _past: list[tuple[Array, NDArray[np.int64]]] = field(default_factory=list)
    _waiting: list[tuple[Array, NDArray[np.int64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log_m = np.full(len(self.settings.sharpness) + len(self.settings.memories), -np.inf)
        if self.beginning is not None:
            self._known.append(self.beginning)

    @property
    def needs(self) -> int:
        """Labelled rows before it can say anything."""
        if self.beginning is None:
            return self.settings.block
        return self.settings.fewest_rows(self.beginning.log_p.shape[1]) - len(self.beginning)

    @property
    def log_threshold(self) -> float:
        """M grows by 1 a block in expectation, and there are horizon / block of them."""
        return math.log(self.settings.horizon / self.settings.block / self.settings.alpha)

    @property
    def log_evidence(self) -> float:
        """log of the mean of M over the alternatives; an alarm at `log_threshold`."""
        top = float(self._log_m.max())
        return top if top == -np.inf else top + math.log(float(np.exp(self._log_m - top).mean()))

    @property
    def on(self) -> bool:
        """Until `horizon` rows have passed without another alarm."""
        return self.fired_at is not None and self.rows - self.fired_at < self.settings.horizon

    def add(self, log_p: Array, labels: NDArray[np.int64]) -> bool:
        """log_p: (N, C) log probabilities that were served, labels (N,). True if it fired."""
        self._waiting.append((log_p, labels))
        if sum(len(y) for _, y in self._waiting) < self.settings.block:
            return False
        log_p = np.concatenate([p for p, _ in self._waiting])
        labels = np.concatenate([y for _, y in self._waiting])
        fired = False
        whole = len(labels) - len(labels) % self.settings.block
        for start in range(0, whole, self.settings.block):
            fired |= self._step(log_p[start : start + self.settings.block], labels[start : start + self.settings.block])
        self._waiting = [(log_p[whole:], labels[whole:])] if whole < len(labels) else []
        return fired

    def _step(self, log_p: Array, labels: NDArray[np.int64]) -> bool:
        self.rows += len(labels)
        learning, slack, served = self.baseline is None, 0.0, log_p
        if self.baseline is None:
            self._learn(log_p, labels)
            if self.beginning is not None:
                return False
        else:
            log_p, slack = self.baseline.apply(log_p), self.baseline.slack * len(labels)
        own = log_p[np.arange(len(labels)), labels].sum()
        gains = [self._log_likelihood(b * log_p, labels) - own for b in self.settings.sharpness]
        for memory in self.settings.memories:
            kept = self._past[-(memory // self.settings.block) :]
            if not kept or learning:
                gains.append(0.0)
                continue
            before, told = np.concatenate([p for p, _ in kept]), np.concatenate([y for _, y in kept])
            bias = class_bias(before, told, prior_rows=self.settings.prior_rows)
            gains.append(self._log_likelihood(log_p + bias, labels) - own)
        if not learning:
            self._past = [*self._past, (log_p, labels)][-(max(self.settings.memories) // self.settings.block) :]
        self._log_m = np.logaddexp(0.0, self._log_m) + np.asarray(gains) - slack
        if self.log_evidence < self.log_threshold:
            if not learning:
                self._settle(served, labels)
            return False
        self.raised_at = self.raised_at if self.on else self.rows
        self.fired_at = self.rows
        self._log_m[:] = -np.inf
        self._newer = []
        return True

    def _learn(self, log_p: Array, labels: NDArray[np.int64]) -> None:
        self._known.append(KnownRows.of(log_p, labels))
        if sum(map(len, self._known)) >= self.settings.fewest_rows(log_p.shape[1]):
            self.baseline = Baseline.fit(self._known)

    def _settle(self, log_p: Array, labels: NDArray[np.int64]) -> None:
        """Takes rows into the baseline once they are old, in a few steps, as long as nothing was wrong."""
        known = sum(map(len, self._known))
        if not known or known >= self.settings.settle or self.fired_at is not None:
            self._known, self._newer = [], []
            return
        self._newer.append(KnownRows.of(log_p, labels))
        old = len(self._newer) - self.settings.lag // self.settings.block
        if old * self.settings.block >= min(known // 4, self.settings.settle - known):
            self._known, self._newer = [*self._known, *self._newer[:old]], self._newer[old:]
            self.baseline = Baseline.fit(self._known)

    @staticmethod
    def _log_likelihood(scores: Array, labels: NDArray[np.int64]) -> float:
        return float(log_softmax(scores)[np.arange(len(labels)), labels].sum())
