"""95 % intervals and null values of binned calibration errors.

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

import numpy as np

from calibrant.calibration.intervals.gaps import GapSample, Norm, Vector, contribution, gap_error
from calibrant.calibration.intervals.inversion import crossing, first_true, turn_around
from calibrant.calibration.intervals.measured import Measured

DRAWS = 1000
_SMALL = 50  # rows in a bin below which the null is drawn as counts rather than as a normal


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

    i = first_true(len(errors), lambda k: lead(k) >= 0)
    if i in (0, len(errors)):
        return float(errors[min(i, len(errors) - 1)])
    return crossing(errors, i, lead(i - 1), lead(i))


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
        each = contribution(true_gap, norm)
        between = np.sqrt(np.maximum(each**2 @ sample.share - (each @ sample.share) ** 2, 0.0) / total)
        drawn += normals[:, -1] * (between if norm != "rms" else between / max(2 * error, 1e-9))
        return drawn

    return errors, observed_given
