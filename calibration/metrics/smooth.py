"""SmoothECE: calibration error without bins, its bandwidth chosen by itself.

smECE_s = integral over t in [0, 1] of |mean_i r_i K_s(c_i, t)|, with c_i the confidence, r_i = correct - confidence and
K_s a Gaussian of standard deviation s reflected at 0 and 1. The value reported is the one at which smECE_s = s.
Source: Blasiok and Nakkiran, "Smooth ECE" (2023).

Differs from the authors' code: its reflection drops the end points of the grid, so confidence near 1 counts half. Here
the reflected kernel is exact, through its cosine series K_s(c, t) = 1 + 2 sum_m exp(-(m pi s)^2 / 2) cos(m pi c)
cos(m pi t): no grid for c at all, and only the integral over t is a trapezoid rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.metrics.rows import read_rows

GRID = 2001
_SMALLEST = 5e-4  # bandwidth below which nothing is resolved: 5 million rows of a perfect model come to about this
_HARMONICS = 6000  # exp(-(m pi s)^2 / 2) < 1e-16 at the smallest bandwidth
_CHUNK = 1 << 14


@dataclass(frozen=True)
class SmoothEce:
    value: float
    bandwidth: float


def smooth_ece_of(
    confidence: NDArray[np.float64], residual: NDArray[np.float64], weights: NDArray[np.float64] | None = None
) -> SmoothEce:
    """From rows, or from cells with `weights` their size and `residual` their mean residual."""
    w = np.full(len(confidence), 1.0 / len(confidence)) if weights is None else weights / weights.sum()
    mass = w * residual
    spectrum = Spectrum(confidence, mass)
    return fixed_point(spectrum.error)


class Spectrum:
    """Cosine coefficients of the residuals, computed as far as a bandwidth asks for them."""

    def __init__(self, confidence: NDArray[np.float64], mass: NDArray[np.float64]) -> None:
        self._confidence, self._mass = confidence, mass
        self._known = np.array([mass.sum()])

    def coefficients(self, harmonics: int) -> NDArray[np.float64]:
        """sum_i mass_i cos(m pi c_i) for m = 0..harmonics."""
        have = len(self._known)
        if harmonics >= have:
            wanted = max(harmonics + 1, 2 * have, 64)
            self._known = np.append(self._known, self._sums(have, wanted))
        return self._known[: harmonics + 1]

    def _sums(self, first: int, end: int) -> NDArray[np.float64]:
        out = np.zeros(end - first)
        for start in range(0, len(self._mass), _CHUNK):
            angle = np.pi * self._confidence[start : start + _CHUNK]
            mass = self._mass[start : start + _CHUNK]
            # cos((m+1) a) = 2 cos a cos(m a) - cos((m-1) a): two multiplications instead of a cosine.
            twice, before, now = 2 * np.cos(angle), np.cos((first - 1) * angle), np.cos(first * angle)
            for m in range(end - first):
                out[m] += np.dot(mass, now)
                before, now = now, twice * now - before
        return out

    def curve(self, bandwidth: float) -> NDArray[np.float64]:
        """The smoothed residual at 2,001 evenly spaced t."""
        import scipy.fft

        harmonics = min(int(np.ceil(8.6 / (np.pi * bandwidth))) + 1, _HARMONICS)
        m = np.arange(harmonics + 1)
        terms = self.coefficients(harmonics) * np.exp(-0.5 * (m * np.pi * bandwidth) ** 2)
        folded = np.zeros(GRID)
        # cos(m pi j / (GRID - 1)) repeats with period 2 (GRID - 1) in m and is even: fold high harmonics back.
        period = 2 * (GRID - 1)
        position = m % period
        np.add.at(folded, np.where(position < GRID, position, period - position), terms)
        # DCT-I gives x_0 + (-1)^j x_M + 2 sum x_m cos: the end terms must count twice here (all but m = 0).
        folded[-1] *= 2.0
        curve: NDArray[np.float64] = scipy.fft.dct(folded, type=1)
        return curve

    def error(self, bandwidth: float) -> float:
        curve = np.abs(self.curve(bandwidth))
        return float((curve.sum() - 0.5 * (curve[0] + curve[-1])) / (GRID - 1))


def fixed_point(error: Callable[[float], float]) -> SmoothEce:
    """The bandwidth s with error(s) = s; error falls as s grows."""
    low, high = _SMALLEST, 1.0
    if error(low) <= low:
        return SmoothEce(error(low), low)
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        if error(middle) > middle:
            low = middle
        else:
            high = middle
    # Falling and smooth: the secant ends what bisection began.
    f_low, f_high = error(low) - low, error(high) - high
    for _ in range(20):
        if f_low == f_high:
            break
        middle = low - f_low * (high - low) / (f_high - f_low)
        middle = min(max(middle, low), high)
        f_middle = error(middle) - middle
        if abs(f_middle) < 1e-13:
            return SmoothEce(error(middle), middle)
        if f_middle > 0:
            low, f_low = middle, f_middle
        else:
            high, f_high = middle, f_middle
    middle = 0.5 * (low + high)
    return SmoothEce(error(middle), middle)


def smooth_ece(probs: ArrayLike, labels: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """SmoothECE of the top label (Blasiok & Nakkiran 2023), without bins; see `smooth_ece_of`."""
    rows = read_rows(probs, labels, weights)
    confidence = rows.confidence.astype(np.float64)
    return smooth_ece_of(confidence, rows.correct - confidence, rows.weights).value
