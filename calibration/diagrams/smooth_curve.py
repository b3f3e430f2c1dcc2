"""The reliability curve without bins: accuracy as a smooth function of confidence, at SmoothECE's own bandwidth.

a(t) = t + r(t) / d(t), with r(t) = mean_i (correct_i - c_i) K_s(c_i, t) the smoothed residual, d(t) = mean_i
K_s(c_i, t) the smoothed density of the confidences, K_s the reflected Gaussian of `smooth`, and s the bandwidth that
SmoothECE chooses. The area between curve and diagonal, weighted by d, is SmoothECE itself. Source: Blasiok and
Nakkiran, "Smooth ECE" (2023).

Differs: the plain kernel regression of correctness on confidence, mean_i correct_i K / mean_i K, is pulled towards
where the rows lie: of a perfect model whose confidences pile up at 1 it shows a curve off the diagonal. Smoothing the
residual instead leaves a perfect model on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.intervals.smooth import residuals_of
from calibrant.calibration.metrics.smooth import GRID, Spectrum, fixed_point
from calibrant.calibration.statistics.bins import Bins
from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]
POINTS = 201
FEWEST_ROWS = 10  # near a point of the curve that make it worth drawing


@dataclass(frozen=True)
class SmoothCurve:
    """Per point (201,): confidence 0, 0.005, ..., 1.

    `rows`: (effective) rows near a point, a row d away counting exp(-d^2 / 2s^2). `accuracy` and the band are NaN where
    there is none. `band_low`, `band_high`: accuracy that 95 % of perfectly calibrated models with these
    confidences would show at this point. `value`, `bandwidth`: SmoothECE and the standard deviation of the kernel;
    `over`, `under`: its parts from where confidence is above accuracy and below.
    """

    confidence: Vector
    accuracy: Vector
    density: Vector
    rows: Vector
    band_low: Vector
    band_high: Vector
    value: float
    bandwidth: float
    over: float
    under: float

    @property
    def gap(self) -> Vector:
        """Confidence minus accuracy: positive where over-confident."""
        return self.confidence - self.accuracy

    @property
    def within_chance(self) -> NDArray[np.bool_]:
        """Where a calibrated model would show such an accuracy too: inside the band, or no row near to tell."""
        return ~((self.accuracy < self.band_low) | (self.accuracy > self.band_high))

    @property
    def supported(self) -> NDArray[np.bool_]:
        return self.rows >= FEWEST_ROWS


def smooth_reliability(statistics: Statistics) -> SmoothCurve:
    """Of all rows (weighted where a target prior is set): from rows where they are kept, from cells beyond."""
    return _curve(*residuals_of(statistics), statistics.cells(), statistics.effective_rows)


def class_smooth_reliability(statistics: Statistics, predicted: list[int]) -> SmoothCurve:
    """Of the rows predicted as one of the classes, from the cells of the per-class grid (1/50 wide at most for up to
    64 classes, 1/15 beyond): a bandwidth below that resolves nothing more."""
    cells = statistics.predicted_class_cells(predicted)
    full = cells.weight > 0
    return _curve(cells.confidence[full], -cells.gap[full], cells.weight[full], cells, float(cells.weight.sum()))


def _curve(
    confidence: Vector, residual: Vector, weights: Vector | None, cells: Bins, effective_rows: float
) -> SmoothCurve:
    share = np.full(len(confidence), 1.0 / len(confidence)) if weights is None else weights / weights.sum()
    spectrum = Spectrum(confidence, share * residual)
    found = fixed_point(spectrum.error)
    every = (GRID - 1) // (POINTS - 1)
    place = np.linspace(0.0, 1.0, POINTS)
    whole = spectrum.curve(found.bandwidth)
    smoothed = whole[::every]
    density = np.maximum(Spectrum(confidence, share).curve(found.bandwidth)[::every], 0.0)
    rows = effective_rows * density * found.bandwidth * np.sqrt(2 * np.pi)
    near = rows > 1e-6
    variance = _variance(cells, place, found.bandwidth)
    gap = np.divide(smoothed, density, out=np.full(POINTS, np.nan), where=near)
    half = np.where(near, Z95 * np.sqrt(variance), np.nan)
    return SmoothCurve(
        place,
        np.clip(place + gap, 0.0, 1.0),
        density,
        rows,
        np.maximum(place - half, 0.0),
        np.minimum(place + half, 1.0),
        found.value,
        found.bandwidth,
        _mean(np.maximum(-whole, 0.0)),
        _mean(np.maximum(whole, 0.0)),
    )


def _mean(values: Vector) -> float:
    """Trapezoid rule over [0, 1]."""
    return float((values.sum() - 0.5 * (values[0] + values[-1])) / (len(values) - 1))


def _variance(cells: Bins, place: Vector, bandwidth: float) -> Vector:
    """Of r(t) / d(t) under perfect calibration: sum w^2 c (1 - c) K^2 / (sum w K)^2, a cell's w taken as alike."""
    full = cells.weight > 0
    c, weight = np.clip(cells.confidence[full], 0.0, 1.0), cells.weight[full]
    squared = weight**2 / np.maximum(cells.rows[full], 1)
    kernel = reflected_kernel(c, place, bandwidth)
    total, noise = weight @ kernel, (squared * c * (1 - c)) @ kernel**2
    return np.divide(noise, total**2, out=np.zeros_like(total), where=total > 1e-150)


def reflected_kernel(c: Vector, place: Vector, bandwidth: float) -> Vector:
    """K_s(c, t) for every c and t, (len(c), len(place)): a Gaussian and its mirror images at 0 and 1."""
    out = np.zeros((len(c), len(place)))
    reach = 1 + int(np.ceil(4 * bandwidth))
    for n in range(-reach, reach + 1):
        for image in (c + 2 * n, 2 * n - c):
            outside = np.maximum(np.maximum(-image, image - 1.0), 0.0)
            near = np.flatnonzero(outside < 9 * bandwidth)  # beyond, nothing of it is left: e^-40
            out[near] += np.exp(-0.5 * ((place - image[near, None]) / bandwidth) ** 2)
    out /= bandwidth * np.sqrt(2 * np.pi)
    return out
