"""Checked probabilities and labels, and what the top-label metrics read off them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import Floats, Labels, Weights, check_labels, check_probs, check_weights
from calibrant.calibration.statistics.bins import Bins, equal_mass, equal_width

_COARSE = 1.0 - 2.0**-16  # from here on a step of float32 is more than 0.4 % of what is missing to 1


@dataclass(frozen=True)
class Rows:
    """N checked rows. Every mean over them is weighted where there are weights."""

    probs: Floats
    labels: Labels
    weights: Weights | None
    predicted: NDArray[np.int64]
    confidence: Floats
    correct: NDArray[np.bool_]

    def mean(self, values: NDArray[np.float64]) -> float:
        if self.weights is None:
            return float(values.mean())
        return float(np.dot(self.weights, values) / self.weights.sum())

    def bins(self, bins: int) -> Bins:
        return equal_width(self.confidence, self.correct, bins, self.weights)

    @property
    def ranking(self) -> Floats:
        """What orders the rows: the confidence, told apart where float32 cannot hold it.

        Close to 1 a float32 confidence is a step of a coarse stair (a tenth of a sharp model's rows may be exactly 1),
        while the probabilities of the other classes still say to seven digits how much is missing.
        """
        if self.probs.dtype != np.float32:
            return self.confidence
        key = self.confidence.astype(np.float64)
        sure = np.flatnonzero(key >= _COARSE)
        others = self.probs[sure].astype(np.float64)
        others[np.arange(len(sure)), self.predicted[sure]] = 0.0
        key[sure] = 1.0 - others.sum(axis=1)
        return key

    def mass_bins(self, bins: int) -> Bins:
        return equal_mass(self.confidence, self.correct, bins, self.weights)


def read_rows(probs: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Rows:
    p = check_probs(probs)
    y = check_labels(labels, *p.shape)
    predicted = p.argmax(axis=1)
    confidence = p[np.arange(len(p)), predicted]
    return Rows(p, y, check_weights(weights, len(p)), predicted, confidence, predicted == y)
