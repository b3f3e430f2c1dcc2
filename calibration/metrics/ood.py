"""How well a score tells rows of the known distribution from foreign ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibrant.calibration.metrics.ranking import auroc_of
from calibrant.errors import ConfigError, DataError


@dataclass(frozen=True)
class OodScores:
    """`fpr` is the share of foreign rows still accepted at the threshold that accepts `tpr` of the known ones."""

    auroc: float
    fpr: float
    tpr: float
    threshold: float


def ood_detection(known: ArrayLike, foreign: ArrayLike, *, tpr: float = 0.95) -> OodScores:
    """How well a score tells rows of the known distribution (higher) from foreign ones (lower)."""
    a, b = np.asarray(known, np.float64), np.asarray(foreign, np.float64)
    if a.ndim != 1 or b.ndim != 1 or len(a) == 0 or len(b) == 0:
        raise DataError(f"scores have shapes {a.shape} and {b.shape}, expected two rows of numbers")
    if np.isnan(a).any() or np.isnan(b).any():
        raise DataError("scores hold NaN")
    if not 0 < tpr <= 1:
        raise ConfigError(f"tpr is {tpr}, expected more than 0 and at most 1")
    accepted = int(np.ceil(tpr * len(a) - 1e-9))
    threshold = float(np.partition(a, len(a) - accepted)[len(a) - accepted])
    return OodScores(auroc_of(a, b), float((b >= threshold).mean()), tpr, threshold)
