"""Class-wise ECE with its interval: every bin of every class is a cell of one experiment.

sum_k |p_k - q_k| <= 2 in each row, so the mean over C classes never exceeds 2 / C; the grid of true errors ends there.
Two classes are one, with gaps mirrored: the cells of one of them are used. With more, the rows tie the classes
together: the variance of the error is f times that of independent cells,

    f = [sum_i (sum_k s_ik r_ik)^2 + n Var_i(sum_k s_ik mu_ik)] / sum_ik r_ik^2,   r_ik = p_ik - [y_i = k] - mu_ik,

mu the mean plausible gap of the cell of (i, k) and s the mean sign of it, over a sample of whole rows. Where nearly all
signs are open f says too little, so it is at least what labels drawn from the probabilities themselves show. Deviations
are stretched by a tenth more than sqrt f: with 10,000 rows of ten over-confident classes the error scattered by .00083
where .00075 was simulated, and the middle lay .17 deviations low, for a reason that was not found.

Plausible gaps are drawn about one curve of all classes, and, where classes occur clearly more or less often than they
are claimed, about claims whose odds are moved for it, by plausible ratios; of both the wider limits count. With the
first alone a bias of each class at C = 100 and 1,000 rows, a handful in a cell, was taken for chance: 13 of 20 data
sets held. To reach a true error the second kind is not scaled alone: each gap moves by what is unknown of it, since to
scale moves the gaps that many rows tell away from what they tell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibration.intervals.beta_binomial import log_gamma
from calibrant.calibration.intervals.binned import measure_gaps
from calibrant.calibration.intervals.gaps import GapSample, Vector
from calibrant.calibration.intervals.measured import Measured
from calibrant.calibration.intervals.simulated import plausible_gaps
from calibrant.calibration.metrics.binned_errors import ece_of
from calibrant.calibration.statistics.bins import Bins
from calibrant.calibration.statistics.reservoir import SampledRows
from calibrant.calibration.statistics.statistics import Statistics

_MOST_DRAWS, _FEWEST_DRAWS = 200, 60
_NUMBERS = 1_500_000  # draws times cells: 12 MB an array
_NULL_DRAWS = 150
_LEAST, _MOST = 0.3, 3.0
_WIDER = 1.1
_NO_SPREAD = 1e-3
_UNKNOWN = 2.0  # where no rows were kept: what two classes in conflict come to
_SEED = 20211


def measure_classwise(s: Statistics, bins: int) -> Measured:
    """Mean over classes of the equal-width ECE of p_k against [y = k], with interval and null value; unweighted."""
    tables = s.class_bins(bins)
    value = ece_of(_table(tables, slice(None)))
    if s.rows < 2:
        return Measured(value)
    if s.classes <= 2:
        return measure_gaps(_sample(tables, slice(-1, None)), "sum", value=value)
    sample, full = _sample(tables, slice(None)), tables[0] > 0
    draws = int(np.clip(_NUMBERS // len(sample.share), _FEWEST_DRAWS, _MOST_DRAWS))
    plausible: list[tuple[Vector, Vector | None]] = [(plausible_gaps(sample, draws), None)]
    ratios = class_ratios(sample, np.broadcast_to(np.arange(s.classes)[:, None], full.shape)[full], draws)
    if ratios is not None:
        odds = sample.confidence * ratios[0]
        of_classes = plausible_gaps(sample, draws, odds / (1.0 - sample.confidence + odds), ratios[1])
        plausible.insert(0, (of_classes, of_classes.std(axis=0)))
    found = []
    for shapes, unknown in plausible:
        f = _UNKNOWN if s.sampled is None else dependence(s.sampled, shapes, full)
        found.append(
            measure_gaps(
                sample,
                "sum",
                value=value,
                draws=draws,
                shapes=shapes,
                unknown=unknown,
                share_noise=False,
                stretch=_WIDER * float(np.sqrt(f)),
                most=2.0 / s.classes,
            )
        )
    lows, highs = [m.low for m in found if m.low is not None], [m.high for m in found if m.high is not None]
    return replace(found[0], low=min(lows, default=None), high=max(highs, default=None))


def class_ratios(sample: GapSample, class_of: NDArray[np.int64], draws: int) -> tuple[Vector, Vector] | None:
    """How much more often the class of each cell occurs than it is claimed, (cells,), shrunk to one: (n_k + a) /
    (e_k + a), 1 / a the variance of the true ratios beyond the chance of the counts; and how far the logarithms of
    plausible ones lie from it, (draws, cells). None where chance explains all of it.

    Each class adds to the variance by what it can tell, e_k^2 / (e_k + 1): by e_k^2 only the commonest would count,
    whose claims have the least room. Without the draws the gaps of rare classes, which tell no ratio, would all be
    taken to be small.
    """
    claimed = np.bincount(class_of, sample.confidence * sample.rows)
    seen = np.bincount(class_of, sample.accuracy * sample.rows)
    beyond = ((seen - claimed) ** 2 - claimed) / (claimed + 1.0)
    variance = float(beyond.sum() / (claimed**2 / (claimed + 1.0)).sum())
    if variance <= _NO_SPREAD:
        return None
    ratio = (seen + 1.0 / variance) / (claimed + 1.0 / variance)
    sd = 1.0 / np.sqrt(seen + 1.0 / variance)  # of the logarithm, as that of a gamma law
    log = sd * np.random.default_rng(_SEED + 1).standard_normal((draws, len(sd))) - sd**2 / 2
    return np.asarray(ratio[class_of]), np.asarray(log[:, class_of])


def _table(tables: tuple[Vector, ...], classes: slice) -> Bins:
    rows, total, positive = (a[classes].reshape(-1) for a in tables[:3])
    return Bins(np.rint(rows).astype(np.int64), rows, total, positive)


def _sample(tables: tuple[Vector, ...], classes: slice) -> GapSample:
    table = _table(tables, classes)
    full = np.where(table.weight > 0, table.weight, 1.0)
    return GapSample.of(table, None, tables[3][classes].reshape(-1) / full - (table.confidence_sum / full) ** 2)


def dependence(rows: SampledRows, shapes: Vector, full: NDArray[np.bool_]) -> float:
    """f of the module's text, from plausible gaps (draws, cells) of the cells that `full` (C, bins) names."""
    gap, sign = np.zeros(full.shape, np.float32), np.zeros(full.shape, np.float32)
    gap[full], sign[full] = shapes.mean(axis=0), np.sign(shapes).mean(axis=0)
    p = rows.probs.astype(np.float32)
    cell = cells_of(p, full.shape[1])
    mu, s = gap.reshape(-1)[cell], sign.reshape(-1)[cell]
    r = p - mu
    r[np.arange(len(p)), rows.label] -= 1.0
    between = float(np.einsum("ik,ik->i", s, mu).var()) * len(p)
    of_rows = np.einsum("ik,ik->i", s, r).astype(np.float64)
    f = (float(of_rows @ of_rows) + between) / max(float(np.einsum("ik,ik->", r, r)), 1e-300)
    return float(np.clip(max(f, null_dependence(p, cell, full.size)), _LEAST, _MOST))


def cells_of(p: NDArray[np.float32], bins: int) -> NDArray[np.int64]:
    """Cell (class * bins + bin) of each probability (N, C), bins (lo, hi]."""
    inside = np.maximum(np.ceil(p * np.float32(bins)) - 1, 0).astype(np.int64)
    cell: NDArray[np.int64] = np.minimum(inside, bins - 1) + np.arange(p.shape[1]) * bins
    return cell


def null_dependence(p: NDArray[np.float32], cell: NDArray[np.int64], cells: int, *, draws: int = _NULL_DRAWS) -> float:
    """Variance of the error when each row's label is drawn from its probabilities, over that of independent cells.

    Rows in order of how sure they are: the same chance for the same rows, in whatever order they were sampled.
    """
    rng = np.random.default_rng(_SEED)
    order = np.lexsort((p[:, 1], p[:, 0], p.max(axis=1)))
    p, cell = p[order], cell[order]
    flat = cell.reshape(-1)
    held = np.bincount(flat, minlength=cells)
    full = np.flatnonzero(held)
    claimed = np.asarray(np.bincount(flat, p.reshape(-1), cells)[full], np.float64)

    def variance(hits: NDArray[Any]) -> float:
        return float(np.abs(claimed - hits).sum(axis=1).var())

    # One search for all rows: the i-th row's cumulative probabilities lie in (i, i + 1].
    n, classes = p.shape
    ladder = np.cumsum(p, axis=1, dtype=np.float64)
    ladder = (ladder / ladder[:, -1:] + np.arange(n)[:, None]).reshape(-1)
    label = np.searchsorted(ladder, rng.random((draws, n)) + np.arange(n)).clip(max=n * classes - 1)
    hits = np.stack([np.bincount(flat[one], minlength=cells)[full] for one in label])
    return variance(hits) / max(float(variance_of_distance(held[full].astype(np.float64), claimed).sum()), 1e-300)


def variance_of_distance(rows: Vector, claimed: Vector) -> Vector:
    """Var |K - n p| of binomial counts K, p = claimed / rows: n p (1 - p) less the square of De Moivre's mean distance,

        E |K - n p| = 2 m C(n, m) p^m (1 - p)^(n - m + 1),    m = floor(n p) + 1.

    Known and not drawn: 150 draws of each leave the ratio above open by a sixth, and rows that differ in the seventh
    digit, as those of a deployed file do, would draw others.
    """
    p = np.clip(claimed / rows, 0.0, 1.0)
    open_ = (p > 0.0) & (p < 1.0)
    n, q = rows[open_], p[open_]
    m = np.minimum(np.floor(n * q) + 1.0, n)  # n p may be rounded up to n
    ways = log_gamma(n + 1.0) - log_gamma(m + 1.0) - log_gamma(n - m + 1.0)
    distance = 2.0 * m * np.exp(ways + m * np.log(q) + (n - m + 1.0) * np.log1p(-q))
    out = np.zeros(len(rows))
    out[open_] = np.maximum(n * q * (1.0 - q) - distance**2, 0.0)
    return out
