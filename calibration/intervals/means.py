"""95 % intervals of shares and of means of rows.

Shares (accuracy): Wilson. Losses (NLL, Brier): a factor, see `loss_interval`. Differences of means: +- t s / sqrt(n).
All take the effective number of rows where rows are weighted. Differences of two shares of the same rows: Agresti and
Min (2005).

With fewer than thirty wrong rows the factor is not enough: where one or two are wrong, they tell neither how often the
surest rows are wrong nor what that costs. So losses that are plausible behind the counts are drawn too, and of both the
wider limits count. Rows whose distance to certainty 1 - c lies in one octave are a group, for in it a wrong row costs
much the same; plausible error rates of the groups (see `beta_binomial`) make the loss, what wrong rows cost beyond what
their confidence tells is added in proportion, and how sure rows happen to be is noise beside it. Without a wrong row
the NLL has no interval. Of data sets of 100 rows with 1.9 wrong ones on average .77 held the NLL by the factor alone,
.97 of those with a wrong row by both (docs/evidence/intervals.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.beta_binomial import weighed_accuracies
from calibrant.calibration.intervals.measured import Measured

if TYPE_CHECKING:
    from calibrant.calibration.statistics.statistics import Statistics

Vector = NDArray[np.float64]
Z95 = 1.959963984540054
_FEW, _HARDLY_ANY = 30.0, 5.0  # wrong rows, effective ones
_TAIL, _TAIL_OF_HARDLY_ANY = 0.0125, 0.005
_DRAWS = 300
_LEAST = 1e-12  # of a probability whose logarithm is taken


def share_interval(share: float, rows: float, *, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a share of `rows` (effective) rows; z: of the normal law, 1.96 for 95 %."""
    z2 = z**2
    centre = (share + z2 / (2 * rows)) / (1 + z2 / rows)
    half = z / (1 + z2 / rows) * np.sqrt(share * (1 - share) / rows + z2 / (4 * rows * rows))
    return float(max(centre - half, 0.0)), float(min(centre + half, 1.0))


def paired_share_interval(gained: float, lost: float, rows: float) -> tuple[float, float]:
    """Interval of a share minus another of the same rows: `gained` rows count only in the first, `lost` in the other.

    Wald's with half a row more in each of the four cells (Agresti and Min 2005): without, rows that nearly all agree
    come to an interval of no width.
    """
    n, up, down = rows + 2.0, gained + 0.5, lost + 0.5
    centre = (up - down) / n
    half = Z95 * float(np.sqrt(max(((up + down) / n - centre**2) / n, 0.0)))
    return max(centre - half, -1.0), min(centre + half, 1.0)


def mean_interval(mean: float, variance: float, rows: float) -> tuple[float, float] | tuple[None, None]:
    """Student's interval of a mean; none from a single row."""
    if rows < 2 or not np.isfinite(mean):
        return None, None
    from scipy.special import stdtrit  # scipy.stats costs 70 MB

    half = float(stdtrit(rows - 1, 0.975)) * float(np.sqrt(max(variance, 0.0) / rows))
    return mean - half, mean + half


_PSEUDO_MEAN, _PSEUDO_SPREAD = 2.0, 10.0  # rows


def loss_interval(
    mean: float, variance: float, rows: float, *, claimed: tuple[float, float], most: float = np.inf
) -> tuple[float, float] | tuple[None, None]:
    """Interval of a mean of losses, which are few, large and never below 0; none from a single row.

    m / f .. m f with x = t s / (m sqrt n), f = 1 + x + x^2 / 2: the scale of logarithms, without its explosion where
    hardly anything is known. `claimed`: mean and variance of the losses if the probabilities were right. Rows that all
    went well say little of what a failure costs, so m is at least what two such rows more would make it, and s^2 what
    ten would. `most` is the largest loss.
    """
    if rows < 2 or not np.isfinite(mean):
        return None, None
    from scipy.special import stdtrit  # scipy.stats costs 70 MB

    centre = max(mean, (rows * mean + _PSEUDO_MEAN * claimed[0]) / (rows + _PSEUDO_MEAN))
    spread = max(variance, (rows * variance + _PSEUDO_SPREAD * claimed[1]) / (rows + _PSEUDO_SPREAD), 0.0)
    if centre <= 0.0:
        return 0.0, 0.0
    x = float(stdtrit(rows - 1, 0.975)) * float(np.sqrt(spread / rows)) / centre
    factor = 1.0 + x + x * x / 2
    return min(centre / factor, mean), min(max(centre * factor, mean), most)


@dataclass(frozen=True)
class _Cells:
    """Rows by confidence: weight, how much of it is wrong, and what a right and a wrong row cost, were the rest of the
    probability one class's."""

    weight: Vector
    wrong: Vector
    confidence: Vector
    if_right: Vector
    if_wrong: Vector

    @property
    def share(self) -> Vector:
        return np.asarray(self.weight / self.weight.sum())

    def claimed(self) -> tuple[float, float]:
        """Mean and variance of the losses if the confidences were right."""
        c = self.confidence
        mean = float(self.share @ (c * self.if_right + (1.0 - c) * self.if_wrong))
        squared = float(self.share @ (c * self.if_right**2 + (1.0 - c) * self.if_wrong**2))
        return mean, squared - mean**2


def measure_losses(s: Statistics) -> dict[str, Measured]:
    """`nll` and `brier`; null: what they come to under perfect calibration."""
    t, w = s.by_true, s.weights
    total, effective = float(w @ t.rows), s.effective_rows
    cells = s.cells()
    full = cells.weight > 0
    weight, surely = cells.weight[full], np.clip(cells.confidence[full], 0.0, 1.0)
    wrong, rest = weight - np.minimum(cells.correct_sum[full], weight), np.maximum(1.0 - surely, _LEAST)
    risks = _plausible_risks(weight, wrong, surely, effective)
    out = {}
    for name, sums, squares, null, if_right, if_wrong, most in (
        ("nll", t.nll, t.nll_squared, t.entropy, -np.log(np.maximum(surely, _LEAST)), -np.log(rest), np.inf),
        ("brier", t.brier, t.brier_squared, t.rows - t.p_squared, 2 * rest**2, 2 * surely**2, 2.0),
    ):
        mean, by_chance = float(w @ sums / total), float(w @ null / total)
        if name == "nll" and float(w @ t.zero) > 0:
            out[name] = Measured(float("inf"), None, None, null=by_chance)
            continue
        # Weighted mean: variance of w (x - mean), by the sums of each class.
        spread = float((w**2) @ (squares - 2 * mean * sums + mean**2 * t.rows)) / total**2 * effective
        unbiased = spread * effective / (effective - 1) if effective > 1 else 0.0
        losses = _Cells(weight, wrong, surely, if_right, if_wrong)
        low, high = loss_interval(mean, unbiased, effective, claimed=losses.claimed(), most=most)
        if risks is not None and low is not None and high is not None:
            other = _plausible(losses, risks, mean, effective)
            low, high = max(min(low, other[0]), 0.0), min(max(high, other[1]), most)
        if name == "nll" and low is not None and not wrong.any():
            out[name] = Measured(mean, null=by_chance, withheld="no row is wrong, so nothing tells what one costs")
            continue
        out[name] = Measured(mean, low, high, null=by_chance)
    return out


def _plausible_risks(weight: Vector, wrong: Vector, confidence: Vector, rows: float) -> Vector | None:
    """Error rates (draws, cells) that could be behind the counts; None where enough rows are wrong.

    `rows`: effective ones.
    """
    scale = rows / float(weight.sum())
    if rows < 2 or float(wrong.sum()) * scale >= _FEW:
        return None
    octave = np.floor(-np.log2(np.maximum(1.0 - confidence, _LEAST)))
    _, group = np.unique(octave, return_inverse=True)
    size = np.asarray(np.bincount(group, weight) * scale, np.float64)
    hits = np.asarray(np.bincount(group, weight - wrong) * scale, np.float64)
    claim = np.bincount(group, weight * confidence) * scale / size
    drawn = weighed_accuracies(claim, hits, size, _DRAWS, np.random.default_rng(0))
    return np.asarray((1.0 - drawn)[:, group])


def _plausible(cells: _Cells, risks: Vector, mean: float, rows: float) -> tuple[float, float]:
    """The middle 97.5 % of the losses that could be behind the counts, 99 % where hardly a row is wrong."""
    seen = float(cells.wrong.sum() / cells.weight.sum())
    told = float((cells.weight - cells.wrong) @ cells.if_right + cells.wrong @ cells.if_wrong) / cells.weight.sum()
    beyond = (mean - told) / max(seen, 0.5 / rows)  # of a wrong row
    cost = cells.if_wrong - cells.if_right
    drawn = cells.share @ cells.if_right + risks @ (cells.share * (cost + beyond))
    row = cells.if_right + risks.mean(axis=0) * cost
    places = float(cells.share @ (row - cells.share @ row) ** 2) / rows
    drawn = drawn + np.sqrt(places) * np.random.default_rng(1).standard_normal(len(drawn))
    tail = _TAIL_OF_HARDLY_ANY if seen * rows < _HARDLY_ANY else _TAIL
    low, high = np.quantile(drawn, (tail, 1.0 - tail))
    return float(low), float(high)
