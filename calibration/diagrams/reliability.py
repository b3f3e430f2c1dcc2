"""The numbers of a reliability diagram: points, their share of the rows, and the band of a calibrated model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95, share_interval
from calibrant.calibration.statistics.bins import Bins
from calibrant.calibration.statistics.mass import mass_bins
from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]
_ROUNDING = 1e-12
_EXACT_BELOW = 30  # rows in a bin below which the band takes binomial quantiles


@dataclass(frozen=True)
class ReliabilityDiagram:
    """Per bin (B,). Where a bin is empty, `rows` is 0 and the other numbers are NaN.

    `band_low`, `band_high`: accuracy that 95 % of perfectly calibrated models with these confidences would show.
    `accuracy_low`, `accuracy_high`: Wilson's interval of the bin's accuracy.
    """

    low: Vector
    high: Vector
    rows: NDArray[np.int64]
    share: Vector
    confidence: Vector
    accuracy: Vector
    accuracy_low: Vector
    accuracy_high: Vector
    band_low: Vector
    band_high: Vector

    @property
    def gap(self) -> Vector:
        """Confidence minus accuracy: positive where over-confident."""
        return self.confidence - self.accuracy

    @property
    def within_chance(self) -> NDArray[np.bool_]:
        """Where a calibrated model would show such an accuracy too: inside the band, or no row to tell."""
        outside = (self.accuracy < self.band_low - _ROUNDING) | (self.accuracy > self.band_high + _ROUNDING)
        return ~outside

    @property
    def filled(self) -> NDArray[np.bool_]:
        return self.rows > 0


def reliability_diagram(statistics: Statistics, bins: int = 15) -> ReliabilityDiagram:
    """Equal-width bins of all rows (weighted where a target prior is set)."""
    table = statistics.bins(bins)
    return _diagram(table, table.confidence_sum - statistics.confidence_squares(bins))


def equal_mass_diagram(statistics: Statistics, bins: int = 15) -> ReliabilityDiagram:
    """Bins of equally many rows (equal weight under a target prior). `low` and `high` mean nothing here."""
    return diagram_of_bins(mass_bins(statistics, bins))


def class_reliability_diagram(statistics: Statistics, predicted: list[int], bins: int = 15) -> ReliabilityDiagram:
    """Rows predicted as one of the classes. Selected by prediction, as by the true class it would be biased."""
    table = statistics.predicted_class_bins(predicted, bins)
    return _diagram(table, table.weight * (table.confidence - table.confidence**2))


def diagram_of_bins(table: Bins) -> ReliabilityDiagram:
    """From bins alone; the band then takes each bin's mean confidence for all its rows."""
    return _diagram(table, table.weight * (table.confidence - table.confidence**2))


def _diagram(table: Bins, variance_sum: Vector) -> ReliabilityDiagram:
    b = len(table.rows)
    edges = np.arange(b + 1) / b
    empty = table.weight <= 0
    confidence = np.where(empty, np.nan, table.confidence)
    accuracy = np.where(empty, np.nan, table.accuracy)
    low, high, band_low, band_high = (np.full(b, np.nan) for _ in range(4))
    for i in np.flatnonzero(~empty):
        n, c = float(table.weight[i]), float(table.confidence[i])
        low[i], high[i] = share_interval(float(np.clip(table.accuracy[i], 0, 1)), n)
        if n < _EXACT_BELOW:
            band_low[i], band_high[i] = _binomial_band(max(1, round(n)), min(c, 1.0))
        else:
            half = Z95 * np.sqrt(max(float(variance_sum[i]), 0.0)) / n
            band_low[i], band_high[i] = max(c - half, 0.0), min(c + half, 1.0)
    return ReliabilityDiagram(
        edges[:-1], edges[1:], table.rows, table.share, confidence, accuracy, low, high, band_low, band_high
    )


def _binomial_band(n: int, p: float) -> tuple[float, float]:
    """Shares k / n that a binomial draw exceeds, or falls short of, in 2.5 % of the cases at most."""
    from scipy.special import bdtr  # scipy.stats costs 70 MB

    reached = bdtr(np.arange(n + 1), n, p)
    low, high = (int(np.searchsorted(reached, q, side="left")) for q in (0.025, 0.975))
    return min(low, n) / n, min(high, n) / n
