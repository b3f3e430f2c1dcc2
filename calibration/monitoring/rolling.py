"""Accuracy, ECE and NLL of the labelled rows of a window, with intervals and null values.

The window of a server is small enough to be kept row by row, so nothing here needs `Statistics`, or scipy;
intervals and null values are those of `calibration.intervals`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.intervals.means import Z95, share_interval
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.statistics.bins import equal_width

Array = NDArray[np.float64]
ECE_BINS = 15


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """What a window keeps of a row whose label is known."""

    confidence: float
    correct: bool
    nll: float
    entropy: float  # the NLL to expect if the probabilities are right
    covered: float = math.nan  # whether its prediction set held the label; NaN where the file makes no sets

    @classmethod
    def of(cls, log_p: Array, label: int, covered: float = math.nan) -> LabelledRow:
        """log_p: (C,)"""
        p = np.exp(log_p)
        return cls(float(p.max()), bool(log_p.argmax() == label), float(-log_p[label]), float(-(p @ log_p)), covered)


@dataclass(frozen=True)
class Rolling:
    """The labelled rows of the window."""

    rows: int
    accuracy: Measured
    ece: Measured
    nll: Measured
    coverage: Measured | None = None  # share of rows whose conformal set held the label

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows, "accuracy": self.accuracy.to_dict(), "ece": self.ece.to_dict(),
            "nll": self.nll.to_dict(), "coverage": None if self.coverage is None else self.coverage.to_dict(),
        }  # fmt: skip


def rolling(rows: list[LabelledRow]) -> Rolling | None:
    """None for fewer than two rows: of one alone no interval can be given."""
    n = len(rows)
    if n < 2:
        return None
    confidence, correct, nll, entropy, covered = (
        np.array([getattr(row, name) for row in rows], np.float64)
        for name in ("confidence", "correct", "nll", "entropy", "covered")
    )
    half = Z95 * float(nll.std(ddof=1)) / math.sqrt(n)
    mean = float(nll.mean())
    return Rolling(
        n,
        _share(correct, null=float(confidence.mean())),
        rolling_ece(confidence, correct),
        Measured(mean, mean - half, mean + half, null=float(entropy.mean())),
        None if np.isnan(covered).any() else _share(covered),
    )


def rolling_ece(confidence: Array, correct: Array) -> Measured:
    """sum_b |sum of (correct - confidence) over bin b| / n over bins (lo, hi] of equal width, as `evaluate` has it."""
    bins = equal_width(confidence, correct, ECE_BINS)
    return measure_gaps(GapSample.of(bins), "sum")


def _share(hits: Array, null: float | None = None) -> Measured:
    share = float(hits.mean())
    return Measured(share, *share_interval(share, len(hits)), null=null)
