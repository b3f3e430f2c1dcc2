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

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.statistics.bins import Bins

Vector = NDArray[np.float64]
Norm = Literal["sum", "over", "under", "rms", "max"]
DRAWS = 1000
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
    from scipy.special import stdtrit  # scipy.stats costs 70 MB

    half = float(stdtrit(rows - 1, 0.975)) * float(np.sqrt(max(variance, 0.0) / rows))
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
    sample: GapSample,
    norm: Norm,
    *,
    value: float | None = None,
    rng: np.random.Generator | None = None,
    draws: int = DRAWS,
) -> Measured:
    """The error with interval and null value; `value` where the caller has it in full precision."""
    rng = rng or np.random.default_rng(0)
    observed = float(gap_error(sample.share, sample.gap, norm))
    null = gap_error(sample.share, null_gaps(sample, rng, draws), norm)
    normals = rng.standard_normal((draws, len(sample.share) + 1))
    low, high = _invert(sample, norm, observed, normals, rng)
    return Measured(observed if value is None else value, low, high, float(null.mean()), float(np.quantile(null, 0.95)))


def plausible_gaps(sample: GapSample, rng: np.random.Generator, draws: int) -> Vector:
    """True gaps that could be behind the observed ones, (draws, bins): what is known about the shape of the curve.

    Empirical Bayes: true gaps lie around a straight line in confidence with variance tau^2, line and tau^2 estimated
    from all bins together; each bin's draws are its posterior given its own observed gap.
    """
    noise = sample.noise_variance(sample.gap)
    basis = np.stack([np.ones_like(sample.gap), sample.confidence - float(sample.share @ sample.confidence)], axis=1)
    best, line, tau2 = -np.inf, np.zeros_like(sample.gap), 0.0
    for candidate in np.concatenate([[0.0], float(np.median(noise)) * 4.0 ** np.arange(-3, 7)]):
        weight = 1.0 / (noise + candidate)
        normal = (basis * weight[:, None]).T @ basis + 1e-9 * np.eye(2)
        fitted = basis @ np.linalg.solve(normal, basis.T @ (weight * sample.gap))
        likelihood = 0.5 * float(np.log(weight).sum() - (weight * (sample.gap - fitted) ** 2).sum())
        likelihood -= 0.5 * float(np.linalg.slogdet(normal)[1])  # restricted: the line is estimated too
        if likelihood > best:
            best, line, tau2 = likelihood, fitted, float(candidate)
    tau = tau2 + 0.05 * noise  # a gap is never known to lie on the line exactly
    share = tau / (tau + noise)
    drawn: Vector = (
        line + share * (sample.gap - line) + np.sqrt(share * noise) * rng.standard_normal((draws, len(line)))
    )
    return drawn


def true_error(sample: GapSample, norm: Norm = "sum", *, draws: int = DRAWS) -> float:
    """The error freed of what noise adds: the true error under which half of all samples would show more.

    The middle of the test that `measure_gaps` turns around, so it may be laid beside the interval of another model,
    which the measured error, with its share of noise, may not. 0 where perfect calibration would show as much.
    """
    rng = np.random.default_rng(0)
    observed = float(gap_error(sample.share, sample.gap, norm))
    found = _observable(sample, norm, observed, rng.standard_normal((draws, len(sample.share) + 1)), rng)
    if found is None:
        return 0.0
    errors, observed_given = found

    def lead(i: int) -> float:
        return float(np.median(observed_given(float(errors[i])))) - observed

    i = _first(len(errors), lambda k: lead(k) >= 0)
    if i in (0, len(errors)):
        return float(errors[min(i, len(errors) - 1)])
    return _crossing(errors, i, lead(i - 1), lead(i))


def _invert(
    sample: GapSample, norm: Norm, observed: float, normals: Vector, rng: np.random.Generator
) -> tuple[float, float]:
    found = _observable(sample, norm, observed, normals, rng)
    return (0.0, observed) if found is None else turn_around(observed, *found)


def _observable(
    sample: GapSample, norm: Norm, observed: float, normals: Vector, rng: np.random.Generator
) -> tuple[Vector, Callable[[float], Vector]] | None:
    """A grid of true errors, and the errors that would be observed under one; None if no gap is on the norm's side."""
    shapes = plausible_gaps(sample, rng, len(normals))
    rest = np.zeros_like(shapes)
    if norm in ("over", "under"):
        # Only this side is scaled; the other stays as it plausibly is.
        sign = 1.0 if norm == "over" else -1.0
        side = np.maximum(sign * shapes, 0.0)
        none = side @ sample.share < 1e-3 * (np.abs(shapes) @ sample.share)
        near = np.maximum(sign * shapes + 2 * np.sqrt(sample.noise_variance(sample.gap)), 0.0)
        side[none] = near[none]
        rest = np.where(side > 0, 0.0, shapes)
        shapes = sign * side
    sizes = gap_error(sample.share, shapes, norm)
    usable = sizes > 1e-12
    if not usable.any():  # every bin lies clearly on the other side
        return None
    shapes, sizes, normals, rest = shapes[usable], sizes[usable], normals[usable], rest[usable]
    shapes = shapes / sizes[:, None]
    total = float(sample.share.sum() ** 2 / (sample.share**2 / sample.rows).sum())
    noise = np.sqrt(sample.noise_variance(np.zeros_like(sample.gap)))
    reach = observed + 4 * float(gap_error(sample.share, noise, "sum")) + 1.5 / np.sqrt(total)
    errors = np.concatenate([[0.0], np.linspace(0, 1, 65)[1:] ** 1.5 * reach])

    def observed_given(error: float) -> Vector:
        true_gap = np.clip(error * shapes + rest, sample.confidence - 1.0, sample.confidence)
        drawn: Vector = gap_error(
            sample.share, true_gap + normals[:, :-1] * np.sqrt(sample.noise_variance(true_gap)), norm
        )
        if norm == "max":
            return drawn
        # The shares of the bins are a sample too; matters where gaps differ between bins.
        each = _contribution(true_gap, norm)
        between = np.sqrt(np.maximum(each**2 @ sample.share - (each @ sample.share) ** 2, 0.0) / total)
        drawn += normals[:, -1] * (between if norm != "rms" else between / max(2 * error, 1e-9))
        return drawn

    return errors, observed_given


def turn_around(observed: float, errors: Vector, observed_given: Callable[[float], Vector]) -> tuple[float, float]:
    """The true errors (of a grid that begins at 0) under which what was observed lies in the middle 95 %."""
    known: dict[int, tuple[float, float]] = {}
    base = float(observed_given(0.0).mean())

    def limits(i: int) -> tuple[float, float]:
        if i not in known:
            drawn = observed_given(float(errors[i]))
            mean, sd = float(drawn.mean()), float(drawn.std())
            # One-sided at the null, two-sided once the distribution has moved away from it.
            tail = 0.025 * float(np.clip((mean - base) / (Z95 * sd + 1e-300), 0.0, 1.0)) if i else 0.0
            low = -np.inf if tail == 0 else float(np.quantile(drawn, tail))
            known[i] = (low, float(np.quantile(drawn, 1 - (0.05 - tail))))
        return known[i]

    # Both limits rise with the true error, so each end of the interval is found by halving.
    first = _first(len(errors), lambda i: limits(i)[1] >= observed)
    beyond = _first(len(errors), lambda i: limits(i)[0] > observed)
    low = 0.0 if first == 0 else float(errors[-1])
    if 0 < first < len(errors):
        low = _crossing(errors, first, limits(first - 1)[1] - observed, limits(first)[1] - observed)
    high = float(errors[-1])
    if beyond < len(errors):
        high = _crossing(errors, beyond, limits(beyond - 1)[0] - observed, limits(beyond)[0] - observed)
    return low, max(low, high)


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """The smallest index at which a condition that stays true holds; `count` if none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _contribution(gap: Vector, norm: Norm) -> Vector:
    if norm == "over":
        return np.maximum(gap, 0.0)
    if norm == "under":
        return np.maximum(-gap, 0.0)
    return gap**2 if norm == "rms" else np.abs(gap)


def _crossing(errors: Vector, i: int, before: float, after: float) -> float:
    """The error between grid points i - 1 and i at which a distance changes sign."""
    if not np.isfinite(before) or not np.isfinite(after) or before == after:
        return float(errors[i])
    share = float(np.clip(-before / (after - before), 0.0, 1.0))
    return float(errors[i - 1] + share * (errors[i] - errors[i - 1]))
