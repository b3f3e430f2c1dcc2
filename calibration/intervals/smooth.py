"""SmoothECE with interval and null value, from rows where they are kept and from cells beyond.

Null: residuals drawn as noise in every cell, each draw with the bandwidth that it would choose. Interval: a test turned
around, as for the binned errors (see `intervals`): the true curve has the shape of plausible gaps of fifteen bins,
smoothed like the data, and the bandwidth is held at the one of the data. The noise is that of those plausible
accuracies, and at least what the claims themselves would show: with that of the observed ones, which are 0 or 1 in bins
of few rows, 33 of 48 data sets of 30 rows were held, now 155 of 160.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.gaps import GapSample
from calibrant.calibration.intervals.inversion import turn_around
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.simulated import plausible_gaps
from calibrant.calibration.metrics.smooth import SmoothEce, smooth_ece_of
from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]
_DRAWS = 200
_GRID = np.linspace(0.0, 1.0, 401)
_BINS = 15
_COSINES = 128


def residuals_of(s: Statistics) -> tuple[Vector, Vector, Vector | None]:
    """Confidence, correct - confidence, and weight of each row, or of each cell where rows are not kept."""
    if s.kept is not None:
        weights = None if s.class_weights is None else s.weights[s.kept.label]
        return s.kept.confidence, s.kept.correct - s.kept.confidence, weights
    cells = s.cells()
    full = cells.weight > 0
    return cells.confidence[full], -cells.gap[full], cells.weight[full]


def smooth_of_statistics(s: Statistics) -> SmoothEce:
    return smooth_ece_of(*residuals_of(s))


def measure_smooth(s: Statistics) -> Measured:
    found = smooth_of_statistics(s)
    cells = s.cells()
    full = np.flatnonzero(cells.weight > 0)
    place, share = np.clip(cells.confidence[full], 0.0, 1.0), cells.share[full]
    rng = np.random.default_rng(0)
    normals = rng.standard_normal((_DRAWS, len(place)))
    nulls = _nulls(place, normals * np.sqrt(place * (1 - place) * share / s.effective_rows))
    low, high = _interval(s, full, place, share, normals, found, rng) if s.effective_rows >= 2 else (None, None)
    return Measured(found.value, low, high, float(nulls.mean()), float(np.quantile(nulls, 0.95)))


def _harmonics(bandwidth: float) -> int:
    return int(np.ceil(6.0 / (np.pi * bandwidth))) + 1  # the next one weighs less than e^-18


def _nulls(place: Vector, mass: Vector) -> Vector:
    """The fixed point of each draw, by interpolation on a grid of bandwidths."""
    bandwidths = np.geomspace(0.0015, 0.3, 45)
    coefficients = np.empty((len(mass), _harmonics(float(bandwidths[0])) + 1))
    for start in range(0, coefficients.shape[1], _COSINES):  # all at once would take 40 MB
        m = np.arange(start, min(start + _COSINES, coefficients.shape[1]))
        coefficients[:, start : start + len(m)] = mass @ np.cos(np.pi * place[:, None] * m)
    above = np.empty((len(bandwidths), len(mass)))
    for i, bandwidth in enumerate(bandwidths):
        m = np.arange(_harmonics(float(bandwidth)) + 1)
        curve = _on_grid(coefficients[:, : len(m)] * np.exp(-0.5 * (m * np.pi * bandwidth) ** 2))
        above[i] = _mean(np.abs(curve)) - bandwidth
    out = np.empty(len(mass))
    for j in range(len(mass)):
        # The difference falls through zero once.
        out[j] = np.interp(0.0, -above[:, j], bandwidths)
    return out


def _on_grid(terms: Vector) -> Vector:
    """x_0 + 2 sum_m x_m cos(m pi t) at the points of the grid, for each row of terms (n, harmonics)."""
    import scipy.fft

    points, period = len(_GRID), 2 * (len(_GRID) - 1)
    padded = np.zeros((len(terms), -(-terms.shape[1] // period) * period))
    padded[:, : terms.shape[1]] = terms
    padded[:, period::period] *= 2.0  # they fall onto m = 0, which the transform takes once
    whole = padded.reshape(len(terms), -1, period).sum(axis=1)
    # cos(m pi j / (points - 1)) is even around half the period.
    folded = whole[:, :points].copy()
    folded[:, 1:-1] += whole[:, : points - 1 : -1]
    folded[:, -1] *= 2.0  # DCT-I takes the last term once, too
    curve: Vector = scipy.fft.dct(folded, type=1, axis=1)
    return curve


def _mean(curves: Vector) -> Vector:
    """Trapezoid rule over the grid."""
    total: Vector = (curves.sum(axis=-1) - 0.5 * (curves[..., 0] + curves[..., -1])) / (curves.shape[-1] - 1)
    return total


def _interval(
    s: Statistics,
    full: NDArray[np.intp],
    place: Vector,
    share: Vector,
    normals: Vector,
    found: SmoothEce,
    rng: np.random.Generator,
) -> tuple[float, float]:
    index = s.cell_grid().bins(_BINS)[full]
    table = s.bins(_BINS)
    filled = np.flatnonzero(table.weight > 0)
    position = np.searchsorted(filled, index)
    sample = GapSample.of(table, table.weight**2 / np.maximum(table.rows * s.effective_rows / s.rows, 1e-300))
    gaps = plausible_gaps(sample, _DRAWS)[:, position]
    accuracy = np.clip(place - gaps, 0.0, 1.0)  # (draws, cells)
    m = np.arange(_harmonics(found.bandwidth) + 1)
    damp = np.where(m == 0, 1.0, 2.0) * np.exp(-0.5 * (m * np.pi * found.bandwidth) ** 2)
    kernel = (np.cos(np.pi * place[:, None] * m) * damp) @ np.cos(np.pi * m[:, None] * _GRID)
    shapes = (gaps * share) @ kernel
    sizes = _mean(np.abs(shapes))
    usable = sizes > 1e-12
    if not usable.any():
        return 0.0, 0.0
    shapes, gaps = shapes[usable] / sizes[usable, None], gaps[usable] / sizes[usable, None]
    variance = np.maximum(accuracy * (1 - accuracy), place * (1 - place))[usable]
    noise = (normals[usable] * np.sqrt(variance * share / s.effective_rows)) @ kernel
    each = np.abs(gaps)
    between = np.sqrt(np.maximum(each**2 @ share - (each @ share) ** 2, 0.0) / s.effective_rows)
    between = between * rng.standard_normal(len(between))
    reach = found.value + 4 * float(_mean(np.abs(noise)).mean()) + 1.5 / np.sqrt(s.effective_rows)

    def observed_given(error: float) -> Vector:
        return _mean(np.abs(error * shapes + noise)) + error * between

    inverted = turn_around(found.value, reach, observed_given)
    return inverted.low, inverted.high
