"""How many labelled rows until an error is seen, or known as closely as wished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrant.calibration.inputs import check_probs
from calibrant.calibration.intervals.means import Z95
from calibrant.calibration.statistics.bins import Bins, equal_width
from calibrant.errors import ConfigError

Vector = NDArray[np.float64]
_Z90, _ONE_SIDED = 1.2815515655446004, 1.6448536269514722  # found in 90 of 100 samples; 5 % false at an error of 0
# The intervals of large errors are a tenth wider than by normal theory: without it, 89.5 of 100 (bench/verdict.py).
_WIDER = 1.1
_MOST = 1 << 40
COMMON = (0.02, 0.05, 0.1)  # errors and widths that people ask for


@dataclass(frozen=True)
class Claims:
    """What decides how much noise there is: share and mean confidence of each bin."""

    share: Vector
    confidence: Vector

    @classmethod
    def of_bins(cls, bins: Bins) -> Claims:
        full = bins.weight > 0
        return cls(bins.share[full], np.clip(bins.confidence[full], 0.0, 1.0))

    @classmethod
    def of_probabilities(cls, probs: ArrayLike, *, bins: int = 15) -> Claims:
        confidence = check_probs(probs).max(axis=1)
        return cls.of_bins(equal_width(confidence, np.zeros(len(confidence), bool), bins))

    def variance(self, error: float = 0.0) -> Vector:
        """a (1 - a) of each bin, its accuracy a being off by `error` towards one half, where noise is largest."""
        c = self.confidence
        a = np.where(c > 0.5, np.maximum(c - error, 0.5), np.minimum(c + error, 0.5))
        variance: Vector = np.maximum(a * (1.0 - a), 1e-12)
        return variance

    def observed(self, error: float, rows: int) -> tuple[float, float]:
        """Mean and standard deviation of the ECE that `rows` show when every bin is off by `error`.

        M = sum s_b E|g_b|, S^2 = sum s_b^2 Var|g_b|, g_b ~ N(error, a (1 - a) / (n s_b)): a folded normal.
        """
        sd = np.sqrt(self.variance(error) / (rows * self.share))
        ratio = error / sd
        density = np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi)
        mean = 2 * sd * density + error * (1 - 2 * _below(-ratio))
        square = error**2 + sd**2
        return float(self.share @ mean), float(np.sqrt(self.share**2 @ np.maximum(square - mean**2, 0.0)))


def labels_needed(
    claims: Claims | ArrayLike, *, error: float | None = None, beyond: float = 0.0, width: float | None = None
) -> int:
    """Rows until a calibration error of `error` is told from one of `beyond` in 90 of 100 samples; or until the 95 %
    interval of the error is at most `width` wide. Labels need not be known: it takes probabilities (N, C) alone.

    The smallest n with M_error(n) - 1.28 S_error(n) >= M_beyond(n) + z S_beyond(n), z = 1.645 at 0, 2.16 above; or
    with 3.92 S_error(n) <= width, where the error is large beside the noise.
    """
    if (error is None) == (width is None):
        raise ConfigError("rows are needed for an error to be seen, or for an interval", fix="give error= or width=")
    for name, value in (("error", error), ("width", width)):
        if value is not None and not 0 < value < 1:
            raise ConfigError(f"{name} is {value}", fix="give a share between 0 and 1, for example 0.05")
    if error is not None and not 0 <= beyond < error:
        raise ConfigError(f"beyond is {beyond}", fix=f"give a share from 0 to the error, {error}")
    known = claims if isinstance(claims, Claims) else Claims.of_probabilities(claims)
    if width is not None:
        return max(2, int(np.ceil((2 * Z95 / width) ** 2 * float(known.share @ known.variance()))))
    assert error is not None
    z = _WIDER * Z95 if beyond else _ONE_SIDED

    def seen(rows: int) -> bool:
        large, large_sd = known.observed(error, rows)
        small, small_sd = known.observed(beyond, rows)
        return large - _Z90 * large_sd >= small + z * small_sd

    return _smallest(seen)


def labels_table(
    claims: Claims, errors: Sequence[float] = COMMON, widths: Sequence[float] = COMMON, *, margin: float
) -> dict[str, Any]:
    """Rows until each error is seen, until the interval is as narrow, and until a verdict with this margin is clear."""
    return {
        "to_see": [{"error": e, "rows": labels_needed(claims, error=e)} for e in errors],
        "to_know": [{"width": w, "rows": labels_needed(claims, width=w)} for w in widths],
        "to_judge": {"margin": margin, "rows": labels_needed(claims, error=2 * margin, beyond=margin)},
    }


def _smallest(holds: Callable[[int], bool]) -> int:
    high = 2
    while not holds(high) and high < _MOST:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _below(z: Vector) -> Vector:
    """Share of the normal distribution below z, to 1e-7 (Abramowitz and Stegun 26.2.17)."""
    t = 1 / (1 + 0.2316419 * np.abs(z))
    series = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * series
    share: Vector = np.where(z < 0, tail, 1 - tail)
    return share
