"""What counts as normal for the calibration alarm: how a deployed file's probabilities were off when all was well."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.softmax import log_softmax

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
MOST_BYTES = 4 << 20  # of rows that a log's record holds


@dataclass(frozen=True)
class KnownRows:
    """Labelled rows that count as normal; `offset` (C,) is what their log odds are off by as a whole, and known.

    Rows spread as in training, answered by a file that corrects for another prior, are off by the correction.
    """

    log_p: NDArray[np.float32]
    labels: Labels
    offset: Array

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, log_p: NDArray[np.floating[Any]], labels: Labels, offset: Array | None = None) -> KnownRows:
        return cls(log_p.astype(np.float32), labels, np.zeros(log_p.shape[1]) if offset is None else offset)

    @classmethod
    def held_out(cls, calibrated: Array, labels: Labels, *, term: Array, prior: Prior) -> KnownRows:
        """Rows as a file would answer them. calibrated: (N, C) logits before its prior correction, which subtracts
        `term` (C,)."""
        off = term if _follow_training(labels, prior, len(term)) else np.zeros(len(term))
        return cls.of(log_softmax(calibrated - term), labels, off)

    def thinned(self) -> KnownRows:
        """At most `MOST_BYTES` of them, evenly spaced: files are often in order of class."""
        most = max(1, MOST_BYTES // (4 * self.log_p.shape[1]))
        if len(self) <= most:
            return self
        kept = np.linspace(0, len(self) - 1, most).round().astype(np.int64)
        return KnownRows(self.log_p[kept], self.labels[kept], self.offset)

    def to_dict(self) -> dict[str, Any]:
        """`log_p`: base64 of little-endian float32 (N, C)."""
        data = base64.b64encode(np.ascontiguousarray(self.log_p, "<f4").tobytes()).decode()
        return {"labels": self.labels.tolist(), "offset": self.offset.tolist(), "log_p": data}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> KnownRows:
        labels, offset = np.asarray(values["labels"], np.int64), np.asarray(values["offset"], np.float64)
        log_p = np.frombuffer(base64.b64decode(values["log_p"]), "<f4").reshape(len(labels), len(offset))
        return cls(log_p.astype(np.float32), labels, offset)


@dataclass(frozen=True)
class Baseline:
    """softmax(b log p + bias): what sharpness and a bias per class were worth on rows that count as normal."""

    sharpness: float
    bias: Array  # (C,)
    rows: int = 0  # that it was fitted on; 0 is known, not estimated

    @property
    def slack(self) -> float:
        """Nats a row by which the estimate may be off: the 99 % quantile of chi2(df) / (2 n), with df = C + 3.

        C parameters from n rows cost chi2(C) / (2 n). Three more for few classes: with two, df = C let 2 of 100 calm
        streams raise an alarm, of which no cause is known.
        """
        freedom = len(self.bias) + 3
        return 0.0 if not self.rows else (freedom + 2.33 * math.sqrt(2 * freedom)) / (2 * self.rows)

    def apply(self, log_p: Array) -> Array:
        return log_softmax(self.sharpness * log_p + self.bias)

    @classmethod
    def fit(cls, known: Sequence[KnownRows], *, prior_rows: float = 10.0) -> Baseline:
        """Vector scaling with one common scale, by turns: the bias by proportional fitting, the scale by Newton."""
        log_p = np.concatenate([block.log_p for block in known]).astype(np.float64)
        labels = np.concatenate([block.labels for block in known])
        off: Array | float = 0.0
        if any(block.offset.any() for block in known):
            off = np.repeat([block.offset for block in known], [len(block) for block in known], axis=0)
        sharpness, bias = 1.0, np.zeros(log_p.shape[1])
        rows = np.arange(len(labels))
        for _ in range(6):
            bias = bias + class_bias(log_softmax(sharpness * log_p + bias + off), labels, prior_rows=prior_rows)
            for _ in range(3):
                q = np.exp(log_softmax(sharpness * log_p + bias + off))
                mean = (q * log_p).sum(axis=1)
                gradient = float((mean - log_p[rows, labels]).mean())
                curvature = float(((q * log_p**2).sum(axis=1) - mean**2).mean()) + 1e-9
                sharpness = float(np.clip(sharpness - gradient / curvature, 0.5, 2.0))
        return cls(sharpness, bias, len(labels))

    def to_dict(self) -> dict[str, Any]:
        return {
            "sharpness": self.sharpness,
            "bias": self.bias.tolist(),
            "rows": self.rows,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Baseline:
        bias = np.asarray(values["bias"], np.float64)
        return cls(float(values["sharpness"]), bias, int(values["rows"]))


def class_bias(log_p: Array, labels: Labels, *, prior_rows: float, rounds: int = 4) -> Array:
    """(C,) b such that softmax(log p + b) predicts each class about as often as it occurs among the labels.

    Rows of p sum to one.

    Iterative proportional fitting, b_k += log((n_k + a) / (sum_i q_ik + a)) with a = prior_rows / C pseudo-rows: the
    maximum-likelihood bias of vector scaling, pulled towards 0.
    """
    classes = log_p.shape[1]
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    p, a, bias = np.exp(log_p), prior_rows / classes, np.zeros(classes)
    for _ in range(rounds):
        factor = np.exp(bias)
        expected = factor * (p.T @ (1.0 / (p @ factor)))
        bias = bias + np.log((counts + a) / (expected + a))
    return bias


def _follow_training(labels: Labels, prior: Prior, classes: int) -> bool:
    """Whether the labels are spread as the training set's were, rather than as those that the file is meant for."""
    if prior.train is None:
        return False
    target = np.full(classes, 1 / classes) if prior.target is None else np.asarray(prior.target)
    counts = np.bincount(labels, minlength=classes)
    floor = 1e-12
    return bool((counts * (np.log(np.maximum(prior.train, floor)) - np.log(np.maximum(target, floor)))).sum() >= 0)
