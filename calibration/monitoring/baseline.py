"""What counts as normal for the calibration alarm: how a deployed file's probabilities were off when all was well."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.artifacts.model_card import Prior
from calibrant.calibration.softmax import log_softmax

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


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
        return log_softmax(self.sharpness * log_p + self.bias)

    @classmethod
    def fit(cls, log_p: Array, labels: Labels, *, prior_rows: float = 10.0) -> Baseline:
        """Vector scaling with one common scale, by turns: the bias by proportional fitting, the scale by Newton."""
        sharpness, bias = 1.0, np.zeros(log_p.shape[1])
        rows = np.arange(len(labels))
        for _ in range(6):
            bias = bias + class_bias(log_softmax(sharpness * log_p + bias), labels, prior_rows=prior_rows)
            for _ in range(3):
                q = np.exp(log_softmax(sharpness * log_p + bias))
                mean = (q * log_p).sum(axis=1)
                gradient = float((mean - log_p[rows, labels]).mean())
                curvature = float(((q * log_p**2).sum(axis=1) - mean**2).mean()) + 1e-9
                sharpness = float(np.clip(sharpness - gradient / curvature, 0.5, 2.0))
        return cls(sharpness, bias, len(labels))

    def to_dict(self) -> dict[str, Any]:
        return {
            "sharpness": self.sharpness, "bias": self.bias.tolist(), "rows": self.rows, "learned": self.learned,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Baseline:
        bias = np.asarray(values["bias"], np.float64)
        return cls(float(values["sharpness"]), bias, int(values["rows"]), bool(values["learned"]))


def class_bias(log_p: Array, labels: Labels, *, prior_rows: float, rounds: int = 4) -> Array:
    """(C,) b such that softmax(log p + b) predicts each class about as often as it occurs among the labels.

    Iterative proportional fitting, b_k += log((n_k + a) / (sum_i q_ik + a)) with a = prior_rows / C pseudo-rows: the
    maximum-likelihood bias of vector scaling, pulled towards 0.
    """
    classes = log_p.shape[1]
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    a, bias = prior_rows / classes, np.zeros(classes)
    for _ in range(rounds):
        bias = bias + np.log((counts + a) / (np.exp(log_softmax(log_p + bias)).sum(axis=0) + a))
    return bias


def held_out_baseline(calibrated: Array, labels: Labels, *, term: Array, prior: Prior) -> Baseline:
    """Of the probabilities with which a file would answer held-out rows, where its classes are spread as it assumes.

    calibrated: (N, C) logits before the file's prior correction, which subtracts `term` (C,).
    """
    if not _follow_training(labels, prior, len(term)):
        return Baseline.fit(log_softmax(calibrated - term), labels)
    # The file corrects its answers for another prior than these rows have: fitted without the correction, the baseline
    # b u + c is b (u - term) + c + (b - 1) term with it.
    found = Baseline.fit(log_softmax(calibrated), labels)
    return replace(found, bias=found.bias + (found.sharpness - 1) * term)


def _follow_training(labels: Labels, prior: Prior, classes: int) -> bool:
    """Whether the labels are spread as the training set's were, rather than as those that the file is meant for."""
    if prior.train is None:
        return False
    target = np.full(classes, 1 / classes) if prior.target is None else np.asarray(prior.target)
    counts = np.bincount(labels, minlength=classes)
    floor = 1e-12
    return bool((counts * (np.log(np.maximum(prior.train, floor)) - np.log(np.maximum(target, floor)))).sum() >= 0)
