"""95 % intervals and null values of binned calibration errors.

Calibration errors are sums of absolute gaps: noise alone makes them positive, so a symmetric interval, or one from
resampling rows (which adds the noise a second time), sits too high. The interval here is a test turned around. True
gaps that could be behind the counts are drawn (see `beta_binomial`), scaled so that they come to a true error e, and
counts are drawn under them: that is what would be OBSERVED. The interval holds the errors e under which what was
observed is not extreme (see `inversion`); the grid of e ends at the largest error that is possible.

The truth is the error of the population in the same bins. For the largest gap (MCE) it is that of the bins in which
this sample has at least ten rows: a bin that the sample hardly met may hold any gap. The parts of the ECE above and
below are tested twice, with the other side as it was drawn and without it, and the wider limits count.

Under a target prior there is none where the rows are worth fewer than ten, or are of one class: of 257 data sets of two
classes with one or two rows of the rarer one .91 held the over-confident part, of 272 with none of it .65 the
under-confident one (docs/evidence/intervals.md).

The null value is the mean of the error that a perfectly calibrated model with the same confidences and the same number
of rows shows; `null_high` is exceeded by 5 % of such models.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calibrant.calibration.intervals.gaps import GapSample, Norm, Vector, gap_error
from calibrant.calibration.intervals.inversion import Inverted, turn_around
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.simulated import families, null_errors, observable, plausible_gaps

if TYPE_CHECKING:
    from calibrant.calibration.statistics.statistics import Statistics

DRAWS = 300
_MAX_ROWS = 10  # of a bin whose gap may be the largest
_LEAST_WORTH = 10  # effective rows


def untold(s: Statistics) -> str | None:
    """Why no calibration error of these rows has an interval under their target prior; None where they have."""
    if s.class_weights is None:
        return None
    if int((s.by_true.rows * s.class_weights > 0).sum()) < 2:
        return "all rows that count are of one class, and a target prior asks about others"
    if s.effective_rows < _LEAST_WORTH:
        return f"weighted to the target prior these rows are worth {s.effective_rows:.1f}, too few to tell"
    return None


def told(m: Measured, s: Statistics) -> Measured:
    """The same, without its interval where these rows do not bear one."""
    why = untold(s)
    return m if why is None else m.without_interval(why)


def measure_gaps(
    sample: GapSample,
    norm: Norm,
    *,
    value: float | None = None,
    draws: int = DRAWS,
    shapes: Vector | None = None,
    unknown: Vector | None = None,
    share_noise: bool = True,
    stretch: float = 1.0,
    most: float = np.inf,
    high: float = np.inf,
) -> Measured:
    """The error with interval and null value; `value` where the caller has it in full precision.

    `most`: a bound on the error beyond that of the bins. `high`: the ECE's upper end, for "over" and "under"; found
    here where it is not given. `shapes`: plausible gaps, where the caller has drawn them already; `unknown`: see
    `simulated.Family`; `share_noise` and `stretch`: see `simulated.observable`. One row has no interval.
    """
    if not len(sample.share):
        return Measured(float("nan") if value is None else value)
    shown = float(gap_error(sample.share, sample.gap, norm)) if value is None else value
    null = null_errors(sample, norm, draws)
    mean = float(null.mean())
    beyond = stretch * sample.widening * (float(np.quantile(null, 0.95)) - mean)
    measured = Measured(shown, null=mean, null_high=mean + beyond)
    if norm == "max":
        enough = sample.rows >= _MAX_ROWS
        sample, shapes = sample.only(enough), None if shapes is None else shapes[:, enough]
    if not len(sample.share) or sample.rows.sum() < 2:
        return measured
    if shapes is None:
        shapes = plausible_gaps(sample, draws)

    def inverted(of: Norm) -> Inverted:
        return invert(sample, of, shapes, unknown=unknown, share_noise=share_noise, stretch=stretch, most=most)

    found = inverted(norm)
    if norm in ("over", "under"):
        high = inverted("sum").high if not np.isfinite(high) else high
        found = Inverted(min(found.low, high), min(found.middle, high), min(found.high, high))
    largest = min(sample.most(norm), most)
    return replace(measured, low=found.low, high=found.high, true_error=found.middle, largest=largest)


def true_error(sample: GapSample, norm: Norm = "sum", *, draws: int = DRAWS) -> float:
    """The error freed of what noise adds: the true error under which half of all samples would show more.

    The middle of the test that `measure_gaps` turns around, so it may be laid beside the interval of another model,
    which the measured error, with its share of noise, may not. 0 where perfect calibration would show as much.
    """
    return invert(sample, norm, plausible_gaps(sample, draws)).middle


def invert(
    sample: GapSample,
    norm: Norm,
    shapes: Vector,
    *,
    unknown: Vector | None = None,
    share_noise: bool = True,
    stretch: float = 1.0,
    most: float = np.inf,
) -> Inverted:
    """The test turned around, over every family of true gaps: the lowest low and the highest high."""
    stretch = stretch * sample.widening
    observed, largest = float(gap_error(sample.share, sample.gap, norm)), min(sample.most(norm), most)
    found = [
        turn_around(observed, largest, observable(f, share_noise=share_noise, stretch=stretch))
        for f in families(sample, norm, shapes, unknown)
    ]
    return Inverted(min(f.low for f in found), found[0].middle, max(f.high for f in found))
