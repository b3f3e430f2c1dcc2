"""95 % intervals and null values.

Means of rows (NLL, Brier): mean +- t s / sqrt(n). Shares (accuracy): Wilson. Both take the effective number of rows
where rows are weighted.

Calibration errors are sums of absolute gaps: noise alone makes them positive, so a symmetric interval, or one from
resampling rows (which adds the noise a second time), sits too high. The interval here is a test turned around. Let the
true gaps be lambda * d, with d the observed gaps freed of the part that noise explains. For each lambda the error that
would be OBSERVED has a known distribution (each bin's gap is its true one plus noise of variance a (1 - a) / n, a the
bin's accuracy); the interval holds the true errors under which what was observed is not extreme. Near zero the test is
one-sided, so the interval reaches 0 in 95 % of the cases in which the truth is 0 (Feldman and Cousins 1998, in spirit).

The null value is the mean of the error that a perfectly calibrated model with the same confidences and the same number
of rows shows; `null_high` is exceeded by 5 % of such models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.bins import Bins

Vector = NDArray[np.float64]
Norm = Literal["sum", "over", "under", "rms", "max"]
DRAWS = 2000
Z95 = 1.959963984540054
_SMALL = 50  # rows in a bin below which the null is drawn as counts rather than as a normal


@dataclass(frozen=True)
class Measured:
    """A value, its 95 % interval, and what perfect calibration would show (mean, and the 95th percentile)."""

    value: float
    low: float | None = None
    high: float | None = None
    null: float | None = None
    null_high: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        def plain(x: float | None) -> float | None:
            return None if x is None or not np.isfinite(x) else float(x)

        return {
            "value": plain(self.value), "low": plain(self.low), "high": plain(self.high), "null": plain(self.null),
            "null_high": plain(self.null_high),
        }  # fmt: skip


def share_interval(share: float, rows: float) -> tuple[float, float]:
    """Wilson's interval of a share of `rows` (effective) rows."""
    z2 = Z95**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = Z95 / (1 + z2 / rows) * np.sqrt(share * (1 - share) / rows + z2 / (4 * rows * rows))
    return float(max(centre - half, 0.0)), float(min(centre + half, 1.0))


def mean_interval(mean: float, variance: float, rows: float) -> tuple[float, float] | tuple[None, None]:
    """Student's interval of a mean; none from a single row."""
    if rows < 2 or not np.isfinite(mean):
        return None, None
    from scipy.stats import t

    half = float(t.ppf(0.975, rows - 1)) * float(np.sqrt(max(variance, 0.0) / rows))
    return mean - half, mean + half


@dataclass(frozen=True)
class GapSample:
    """Bins as an experiment: share, confidence, gap, effective rows, and variance of the confidence in each bin."""

    share: Vector
    confidence: Vector
    gap: Vector
    rows: Vector
    spread: Vector

    @classmethod
    def of(cls, bins: Bins, weight_squares: Vector | None = None, spread: Vector | None = None) -> GapSample:
        """`weight_squares`: sum of squared weights of each bin; `spread`: variance of the confidences in each bin."""
        full = bins.weight > 0
        squares = bins.weight if weight_squares is None else weight_squares
        spread_of = np.zeros(int(full.sum())) if spread is None else np.maximum(spread[full], 0.0)
        return cls(
            bins.share[full], bins.confidence[full], bins.gap[full],
            np.maximum(bins.weight[full] ** 2 / squares[full], 1.0), spread_of,
        )  # fmt: skip

    def noise_variance(self, true_gap: Vector) -> Vector:
        """Variance of an observed gap when the true one is `true_gap`: (a (1 - a) - spread) / n."""
        accuracy = np.clip(self.confidence - true_gap, 0.0, 1.0)
        one_row = np.maximum(accuracy * (1 - accuracy) - self.spread, 1e-12)
        return one_row / self.rows


def gap_error(share: Vector, gap: Vector, norm: Norm) -> Any:
    """The error that gaps (.., bins) come to."""
    if norm == "sum":
        return np.abs(gap) @ share
    if norm == "over":
        return np.maximum(gap, 0.0) @ share
    if norm == "under":
        return np.maximum(-gap, 0.0) @ share
    if norm == "rms":
        return np.sqrt(np.square(gap) @ share)
    return np.abs(gap).max(axis=-1)


def null_gaps(sample: GapSample, rng: np.random.Generator, draws: int = DRAWS) -> Vector:
    """Gaps that perfectly calibrated models show, (draws, bins)."""
    gaps = rng.standard_normal((draws, len(sample.share))) * np.sqrt(sample.noise_variance(np.zeros_like(sample.gap)))
    for b in np.flatnonzero(sample.rows < _SMALL):
        n = max(1, round(float(sample.rows[b])))
        gaps[:, b] = sample.confidence[b] - rng.binomial(n, min(sample.confidence[b], 1.0), draws) / n
    return gaps


def measure_gaps(
    sample: GapSample, norm: Norm, *, value: float | None = None, rng: np.random.Generator | None = None
) -> Measured:
    """The error with interval and null value; `value` where the caller has it in full precision."""
    rng = rng or np.random.default_rng(0)
    observed = float(gap_error(sample.share, sample.gap, norm))
    null = gap_error(sample.share, null_gaps(sample, rng), norm)
    normals = rng.standard_normal((DRAWS, len(sample.share) + 1))
    low, high = _invert(sample, norm, observed, normals)
    return Measured(observed if value is None else value, low, high, float(null.mean()), float(np.quantile(null, 0.95)))


def pattern(sample: GapSample) -> Vector:
    """The observed gaps without the part that noise explains: sign(g) sqrt(max(g^2 - variance, 0))."""
    variance = sample.noise_variance(sample.gap)
    freed: Vector = np.sign(sample.gap) * np.sqrt(np.maximum(sample.gap**2 - variance, 0.0))
    return freed if np.abs(freed).max() > 0 else sample.gap


def _invert(sample: GapSample, norm: Norm, observed: float, normals: Vector) -> tuple[float, float]:
    shape = pattern(sample)
    size = float(gap_error(sample.share, shape, norm))
    if size <= 0:  # for example no over-confident bin at all: take the size from all gaps
        shape = np.abs(sample.gap) if norm != "under" else -np.abs(sample.gap)
        size = float(gap_error(sample.share, shape, norm))
    total = float(sample.share.sum() ** 2 / (sample.share**2 / sample.rows).sum())
    if size <= 0:
        size, shape = 1.0, np.ones_like(sample.gap) * (-1.0 if norm == "under" else 1.0)
    noise = float(gap_error(sample.share, np.sqrt(sample.noise_variance(sample.gap)), "rms"))
    reach = (observed + 6 * noise / 1.0 + 3 / np.sqrt(total) * 0.5) / size
    scales = np.concatenate([[0.0], np.linspace(0, 1, 81)[1:] ** 1.5 * reach])
    errors, outside_low, outside_high = np.empty(len(scales)), np.empty(len(scales)), np.empty(len(scales))
    base = 0.0
    for i, scale in enumerate(scales):
        true_gap = np.clip(scale * shape, sample.confidence - 1.0, sample.confidence)
        errors[i] = float(gap_error(sample.share, true_gap, norm))
        drawn = gap_error(sample.share, true_gap + normals[:, :-1] * np.sqrt(sample.noise_variance(true_gap)), norm)
        if norm != "max":
            # The shares of the bins are a sample too; matters where gaps differ between bins.
            each = _contribution(true_gap, norm)
            level = float(sample.share @ each)
            between = float(np.sqrt(sample.share @ (each - level) ** 2 / total))
            drawn = drawn + normals[:, -1] * (between if norm != "rms" else between / max(2 * errors[i], 1e-9))
        mean, sd = float(drawn.mean()), float(drawn.std())
        base = mean if i == 0 else base
        # One-sided at the null, two-sided once the distribution has moved away from it.
        lower_tail = 0.025 * float(np.clip((mean - base) / (Z95 * sd + 1e-300), 0.0, 1.0))
        outside_low[i] = -np.inf if lower_tail == 0 else float(np.quantile(drawn, lower_tail))
        outside_high[i] = float(np.quantile(drawn, 1 - (0.05 - lower_tail)))
    inside = (observed >= outside_low) & (observed <= outside_high)
    if not inside.any():  # between two scales of the grid
        nearest = int(np.argmin(np.abs(errors - observed)))
        return float(errors[nearest]), float(errors[nearest])
    first, last = int(np.argmax(inside)), len(inside) - 1 - int(np.argmax(inside[::-1]))
    low = errors[first] if first == 0 else _crossing(errors, outside_high - observed, first - 1)
    high = errors[last] if last == len(scales) - 1 else _crossing(errors, outside_low - observed, last)
    return float(low), float(high)


def _contribution(gap: Vector, norm: Norm) -> Vector:
    if norm == "over":
        return np.maximum(gap, 0.0)
    if norm == "under":
        return np.maximum(-gap, 0.0)
    return gap**2 if norm == "rms" else np.abs(gap)


def _crossing(errors: Vector, distance: Vector, i: int) -> float:
    """The error between grid points i and i + 1 at which `distance` changes sign."""
    a, b = distance[i], distance[i + 1]
    if not np.isfinite(a) or not np.isfinite(b) or a == b:
        return float(errors[i + 1])
    share = float(np.clip(-a / (b - a), 0.0, 1.0))
    return float(errors[i] + share * (errors[i + 1] - errors[i]))
