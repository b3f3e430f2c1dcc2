"""What a stream of served predictions says about accuracy, calibration and drift.

Without labels, if the confidences c_i are calibrated, correctness is Bernoulli(c_i): the accuracy of n rows is expected
to be mean(c) with variance sum c (1 - c) / n^2, plus that of the gap between accuracy and confidence on held-out data
where the file knows it (metrics of the card).

With labels, a Shiryaev-Roberts e-detector (Shin, Ramdas and Rinaldo 2022) watches calibration. If p_i is the true
distribution of the label, then for any other distribution q_i that was fixed before the label came

    e_i = q_i(y_i) / p_i(y_i)

has expectation 1, so M_t = (1 + M_{t-1}) e_t minus t is a martingale, and the chance that M reaches h / alpha within h
steps is at most alpha, wherever one looks. Steps are blocks of rows, e_t the product over a block. The accuracy may
fall and no alarm be raised: that is right where the confidence falls with it.

Drift of the confidence and of the predicted class uses the same detector on a categorical variable, blocks of rows
against a reference distribution, with the distribution seen shortly before as the alternative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import ModelCard

Array = NDArray[np.float64]
SHARPNESS = (0.35, 0.5, 0.7, 1.4, 2.0)
Z95 = 1.959964


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def expected_accuracy(confidence: Array, *, gap: float = 0.0, gap_variance: float = 0.0) -> Interval:
    """Accuracy to expect of rows with these confidences, 95 %; `gap` is accuracy - confidence on held-out data."""
    n = len(confidence)
    mean = float(np.clip(confidence.mean() + gap, 0.0, 1.0))
    variance = float((confidence * (1 - confidence)).sum()) / n**2 + gap_variance
    half = Z95 * math.sqrt(variance)
    return Interval(mean, max(0.0, mean - half), min(1.0, mean + half))


def held_out_gap(card: ModelCard | None) -> tuple[float, float]:
    """Accuracy - mean confidence on the rows of the calibrator's cross-fitted check, and the variance of that.

    The binned gaps add up to it: under-confidence - over-confidence (metrics of calibrate: under_ece, over_ece). Zeros
    where the file records no such check.
    """
    try:
        after = card.metrics.get("after", card.metrics)  # type: ignore[union-attr]
        rows = float((card.calibrator or {})["fitted_on"]["rows"])  # type: ignore[union-attr]
        accuracy = float(after["accuracy"]["value"])
        gap = float(after["under_ece"]["value"]) - float(after["over_ece"]["value"])
        return gap, max(1e-12, accuracy * (1 - accuracy) / rows)
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0.0, 0.0


def ece(confidence: Array, correct: Array, *, bins: int = 15, weights: Array | None = None) -> float:
    """sum_b |sum of w (correct - confidence) over bin b| / sum of w, bins (lo, hi] of equal width."""
    w = np.ones(len(confidence)) if weights is None or not weights.any() else weights
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(index, w * (correct - confidence), minlength=bins)
    return float(np.abs(gaps).sum() / w.sum())


@dataclass(frozen=True)
class Rolling:
    """The labelled rows of the window."""

    rows: int
    accuracy: Interval
    ece: Interval
    nll: Interval
    coverage: Interval | None = None  # share of rows whose conformal set held the label

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "accuracy": self.accuracy.to_dict(), "ece": self.ece.to_dict(),
            "nll": self.nll.to_dict(), "coverage": None if self.coverage is None else self.coverage.to_dict(),
        }  # fmt: skip


def rolling(confidence: Array, correct: Array, nll: Array, covered: Array | None, *, draws: int = 200) -> Rolling:
    """Accuracy (Wilson), NLL (normal) and ECE (bootstrap, 95 %) of labelled rows."""
    n = len(confidence)
    rng = np.random.default_rng(n)
    value = ece(confidence, correct)
    resampled = [ece(confidence, correct, weights=rng.poisson(1.0, n).astype(np.float64)) for _ in range(draws)]
    # A bootstrap sample has the noise of the data twice, so its ECE is too high by about what the data's is.
    low, high = np.quantile(resampled, [0.025, 0.975]) + (value - float(np.mean(resampled)))
    half = Z95 * float(nll.std()) / math.sqrt(n)
    mean = float(nll.mean())
    return Rolling(
        n, wilson(float(correct.sum()), n), Interval(value, max(0.0, float(low)), min(1.0, float(high))),
        Interval(mean, mean - half, mean + half), None if covered is None else wilson(float(covered.sum()), n),
    )  # fmt: skip


def wilson(successes: float, n: int) -> Interval:
    """Score interval of a proportion (Wilson 1927), 95 %."""
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return Interval(p, max(0.0, centre - half), min(1.0, centre + half))


def class_bias(log_p: Array, labels: NDArray[np.int64], *, prior_rows: float, rounds: int = 4) -> Array:
    """(C,) b such that softmax(log p + b) predicts each class about as often as it occurs among the labels.

    Iterative proportional fitting, b_k += log((n_k + a) / (sum_i q_ik + a)) with a = prior_rows / C pseudo-rows: the
    maximum-likelihood bias of vector scaling, pulled towards 0.
    """
    classes = log_p.shape[1]
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    a, bias = prior_rows / classes, np.zeros(classes)
    for _ in range(rounds):
        bias = bias + np.log((counts + a) / (np.exp(_normalised(log_p + bias)).sum(axis=0) + a))
    return bias


@dataclass(frozen=True)
class Baseline:
    """softmax(b log p + bias): what sharpness and a bias per class were worth on rows that count as normal."""

    sharpness: float
    bias: Array  # (C,)
    rows: int = 0  # that it was fitted on; 0 is known, not estimated
    learned: bool = False  # from the stream itself

    @property
    def slack(self) -> float:
        """Nats a row by which the estimate may be off.

        C parameters from n rows cost chi2(C) / (2 n); of its 99 % quantile half is taken, because the alternatives are
        estimates as well and find only a part of it. Two thirds for one that was learned on the way: it was fitted
        several times, each time an occasion to err.
        """
        classes = len(self.bias)
        part = 2 / 3 if self.learned else 1 / 2
        return 0.0 if not self.rows else part * (classes + 2.33 * math.sqrt(2 * classes)) / (2 * self.rows)

    def apply(self, log_p: Array) -> Array:
        return _normalised(self.sharpness * log_p + self.bias)

    @classmethod
    def fit(cls, log_p: Array, labels: NDArray[np.int64], *, prior_rows: float = 10.0) -> Baseline:
        """Vector scaling with one common scale, by turns: the bias by proportional fitting, the scale by Newton."""
        sharpness, bias = 1.0, np.zeros(log_p.shape[1])
        rows = np.arange(len(labels))
        for _ in range(6):
            bias = bias + class_bias(_normalised(sharpness * log_p + bias), labels, prior_rows=prior_rows)
            for _ in range(3):
                q = np.exp(_normalised(sharpness * log_p + bias))
                mean = (q * log_p).sum(axis=1)
                gradient = float((mean - log_p[rows, labels]).mean())
                curvature = float(((q * log_p**2).sum(axis=1) - mean**2).mean()) + 1e-9
                sharpness = float(np.clip(sharpness - gradient / curvature, 0.5, 2.0))
        return cls(sharpness, bias, len(labels))


def _normalised(log_p: Array) -> Array:
    top = log_p.max(axis=-1, keepdims=True)
    shifted = log_p - top
    normal: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normal


@dataclass
class CalibrationAlarm:
    """Fires with a chance of at most `alpha` within `horizon` labelled rows of a model that stays as it was.

    Alternatives: sharper or flatter (`sharpness`), and a class bias learned from the rows just before, over two
    memories. The null is a baseline, so that the misfit that a real model is deployed with is not taken for a change:
    a given one, or the one learned from the first `learn` labelled rows. Until then the null is p itself, against the
    sharper and flatter alternatives only. A learned baseline is fitted again as labels come, to those at least `lag`
    rows old, until it knows `settle` of them or there was an alarm. What a baseline may be off by is taken off the
    evidence.
    """

    alpha: float = 0.001  # a baseline is an estimate, which costs a factor of up to ten on real data
    horizon: int = 5000
    sharpness: tuple[float, ...] = SHARPNESS
    memories: tuple[int, ...] = (150, 500)
    block: int = 25
    prior_rows: float = 60.0
    baseline: Baseline | None = None
    learn: int = 1000
    settle: int = 5000
    lag: int = 500
    rows: int = 0
    fired_at: int | None = None  # the row of the last alarm
    _log_m: Array = field(init=False)
    _known: list[tuple[Array, NDArray[np.int64]]] = field(
        default_factory=list
    )  # rows that the baseline was learned from
    _newer: list[tuple[Array, NDArray[np.int64]]] = field(default_factory=list)
    _past: list[tuple[Array, NDArray[np.int64]]] = field(default_factory=list)
    _waiting: list[tuple[Array, NDArray[np.int64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log_m = np.full(len(self.sharpness) + len(self.memories), -np.inf)

    @property
    def log_threshold(self) -> float:
        """M grows by 1 a block in expectation, and there are horizon / block of them."""
        return math.log(self.horizon / self.block / self.alpha)

    @property
    def log_evidence(self) -> float:
        """log of the mean of M over the alternatives; an alarm at `log_threshold`."""
        top = float(self._log_m.max())
        return top if top == -np.inf else top + math.log(float(np.exp(self._log_m - top).mean()))

    @property
    def on(self) -> bool:
        """Until `horizon` rows have passed without another alarm."""
        return self.fired_at is not None and self.rows - self.fired_at < self.horizon

    def add(self, log_p: Array, labels: NDArray[np.int64]) -> bool:
        """log_p: (N, C) log probabilities that were served, labels (N,). True if it fired."""
        self._waiting.append((log_p, labels))
        if sum(len(y) for _, y in self._waiting) < self.block:
            return False
        log_p = np.concatenate([p for p, _ in self._waiting])
        labels = np.concatenate([y for _, y in self._waiting])
        fired = False
        whole = len(labels) - len(labels) % self.block
        for start in range(0, whole, self.block):
            fired |= self._step(log_p[start : start + self.block], labels[start : start + self.block])
        self._waiting = [(log_p[whole:], labels[whole:])] if whole < len(labels) else []
        return fired

    def _step(self, log_p: Array, labels: NDArray[np.int64]) -> bool:
        self.rows += len(labels)
        learning, slack, served = self.baseline is None, 0.0, log_p
        if self.baseline is None:
            self._learn(log_p, labels)
        else:
            log_p, slack = self.baseline.apply(log_p), self.baseline.slack * len(labels)
        own = log_p[np.arange(len(labels)), labels].sum()
        gains = [self._log_likelihood(b * log_p, labels) - own for b in self.sharpness]
        for memory in self.memories:
            kept = self._past[-(memory // self.block) :]
            if not kept or learning:
                gains.append(0.0)
                continue
            bias = class_bias(
                np.concatenate([p for p, _ in kept]), np.concatenate([y for _, y in kept]), prior_rows=self.prior_rows
            )
            gains.append(self._log_likelihood(log_p + bias, labels) - own)
        if not learning:
            self._past = [*self._past, (log_p, labels)][-(max(self.memories) // self.block) :]
        self._log_m = np.logaddexp(0.0, self._log_m) + np.asarray(gains) - slack
        if self.log_evidence < self.log_threshold:
            if not learning:
                self._settle(served, labels)
            return False
        self.fired_at = self.rows
        self._log_m[:] = -np.inf
        self._newer = []
        return True

    def _learn(self, log_p: Array, labels: NDArray[np.int64]) -> None:
        self._known.append((log_p.astype(np.float32), labels))
        if self.rows >= self.learn:
            self._fit()

    def _settle(self, log_p: Array, labels: NDArray[np.int64]) -> None:
        """Takes rows into the baseline once they are old, in a few steps, as long as nothing was wrong."""
        known = sum(len(y) for _, y in self._known)
        if not known or known >= self.settle or self.fired_at is not None:
            self._known, self._newer = [], []
            return
        self._newer.append((log_p.astype(np.float32), labels))
        old = len(self._newer) - self.lag // self.block
        if old * self.block >= min(known // 4, self.settle - known):
            self._known, self._newer = [*self._known, *self._newer[:old]], self._newer[old:]
            self._fit()

    def _fit(self) -> None:
        found = Baseline.fit(
            np.concatenate([p for p, _ in self._known]).astype(np.float64), np.concatenate([y for _, y in self._known])
        )
        self.baseline = replace(found, learned=True)

    @staticmethod
    def _log_likelihood(scores: Array, labels: NDArray[np.int64]) -> float:
        return float(_normalised(scores)[np.arange(len(labels)), labels].sum())


@dataclass
class DriftAlarm:
    """Drift of a categorical variable from a reference, without labels, in blocks of `block` rows.

    Without a reference the first `learn` rows are it. Such a reference is off by chi2(C - 1) / (2 n) nats a row; twice
    the 99 % quantile of that is taken off the evidence, so that its error does not add up to an alarm.
    """

    categories: int
    reference: Array | None = None
    alpha: float = 0.01
    horizon: int = 100_000
    learn: int = 2000
    block: int = 50
    memory: float = 0.9  # of the alternative, per block
    rows: int = 0
    fired_at: int | None = None
    _log_m: float = -math.inf
    _slack: float = 0.0  # nats a row
    _learned: Array = field(init=False)
    _recent: Array = field(init=False)
    _pending: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.learn = max(self.learn, 20 * self.categories)
        self._learned = np.zeros(self.categories)
        self._recent = np.zeros(self.categories)

    @property
    def ready(self) -> bool:
        return self.reference is not None

    @property
    def log_threshold(self) -> float:
        return math.log(self.horizon / self.block / self.alpha)

    @property
    def log_evidence(self) -> float:
        return self._log_m

    @property
    def on(self) -> bool:
        return self.fired_at is not None and self.rows - self.fired_at < self.horizon

    def add(self, values: NDArray[np.integer[Any]]) -> bool:
        """(N,) categories in order of time. True if it fired."""
        self._pending += np.asarray(values).tolist()
        fired = False
        while len(self._pending) >= self.block:
            chunk, self._pending = self._pending[: self.block], self._pending[self.block :]
            fired |= self._step(np.bincount(chunk, minlength=self.categories).astype(np.float64))
        return fired

    def _step(self, counts: Array) -> bool:
        self.rows += int(counts.sum())
        if self.reference is None:
            self._learned += counts
            if self._learned.sum() >= self.learn:
                # Half a row in every category: what was not seen in the first rows is not impossible.
                self.reference = (self._learned + 0.5) / (self._learned + 0.5).sum()
                freedom = self.categories - 1
                self._slack = (freedom + 2.33 * math.sqrt(2 * freedom)) / float(self._learned.sum())
            return False
        reference = self.reference
        seen = self._recent.sum()
        fired = False
        if seen >= self.block:
            # Pulled half way to the reference: the estimate has noise of its own, and the reference too.
            q = 0.5 * reference + 0.5 * (self._recent + self.block * reference) / (seen + self.block)
            log_e = float((counts * np.log(q / reference)).sum()) - self._slack * counts.sum()
            self._log_m = float(np.logaddexp(0.0, self._log_m)) + log_e
            if self._log_m >= self.log_threshold:
                fired, self.fired_at, self._log_m = True, self.rows, -math.inf
        self._recent = self.memory * self._recent + counts
        return fired
