"""What would be observed if the true error were e: counts drawn under plausible gaps of exactly that size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from calibrant.calibration.intervals.beta_binomial import accuracies
from calibrant.calibration.intervals.counts import HitDraws
from calibrant.calibration.intervals.gaps import GapSample, Norm, Vector, contribution, gap_error

_ROUNDS, _HALVINGS, _MOVES = 4, 14, 6
_MANY = 100  # rows of a bin from which its count is nearly continuous
_SEED = 20210


def plausible_gaps(sample: GapSample, draws: int, claim: Vector | None = None, moved: Vector | None = None) -> Vector:
    """True gaps that could be behind the observed ones, (draws, bins): claim minus a plausible accuracy.

    `claim`: what accuracies are a curve of, where it is not the confidence; `moved`: how far its logits lie from
    there in each draw.
    """
    rng = np.random.default_rng(_SEED)
    return sample.confidence - accuracies(
        sample.confidence if claim is None else claim,
        sample.accuracy * sample.counts,
        sample.counts.astype(np.float64),
        draws,
        rng,
        moved,
    )


def null_errors(sample: GapSample, norm: Norm, draws: int) -> Vector:
    """Errors that perfectly calibrated models show, (draws,)."""
    rng = np.random.default_rng(_SEED + 1)
    # One cell after another: what a binomial generator prepares for its n and p then serves all draws.
    hits = rng.binomial(sample.counts[:, None], sample.confidence[:, None], (len(sample.share), draws)).T
    return np.asarray(gap_error(sample.share, _gaps(sample, sample.confidence, hits / sample.counts), norm))


def observed_gaps(sample: GapSample, truth: Vector, hits: HitDraws) -> Vector:
    """Gaps that a sample shows when the true ones are `truth` (draws, bins): claim - hits / rows, hits counted."""
    accuracy = np.clip(sample.confidence - truth, 0.0, 1.0)
    return _gaps(sample, accuracy, hits.shares(accuracy))


@cache
def spread_normals(draws: int) -> Vector:
    """Standard normal values at evenly spread quantiles, in an order of chance.

    Of 300 independent draws the 2.5 % quantile is off by 0.15 in the mean, and the same way for every interval.
    """
    from statistics import NormalDist

    inverse = NormalDist().inv_cdf
    values = np.array([inverse((n + 0.5) / draws) for n in range(draws)])
    return np.random.default_rng(_SEED + 2).permutation(values)


def _gaps(sample: GapSample, accuracy: Vector, share: Vector) -> Vector:
    """Claim - share of hits, less the part of its noise that the rows' own confidences explain.

    Rows of one bin differ in confidence: the noise is that of the count times sqrt(1 - spread / (a (1 - a))).
    """
    explained = np.where(sample.rows >= _MANY, sample.spread, 0.0)  # below, counts are too coarse to be scaled
    if not explained.any():
        return np.asarray(sample.confidence - share)
    variance = accuracy * (1.0 - accuracy)
    left = np.sqrt(np.clip(1.0 - explained / np.maximum(variance, 1e-300), 0.0, 1.0))
    return np.asarray(sample.confidence - accuracy - (share - accuracy) * left)


@dataclass(frozen=True)
class Family:
    """True gaps of every size: shapes (draws, bins) that are scaled to it, and a rest that stays as it is.

    `unknown`: how far each gap (bins,) may lie from its shape. Where it is given all gaps move by so many times that
    before they are scaled: a gap that many rows tell then stays about where they tell it. For "sum" only.
    """

    sample: GapSample
    norm: Norm
    shape: Vector
    rest: Vector | None = None
    unknown: Vector | None = None

    def of_size(self, error: float) -> Vector:
        """Gaps that come to `error`, none beyond what its claim allows: scaled, cut, and scaled again."""
        s, gap = self.sample, np.zeros_like(self.shape)
        if error > 0:
            gap = self.shape if self.unknown is None else self._moved(self.unknown, error)
            for _ in range(_ROUNDS):
                size = np.asarray(gap_error(s.share, gap, self.norm))
                if np.all(np.abs(size - error) <= 1e-9 * error):
                    break
                gap = np.clip(gap * (error / np.maximum(size, 1e-300))[:, None], s.confidence - 1.0, s.confidence)
        if self.rest is not None:
            gap = gap + self.rest
        return self._pushed(gap, error) if error > 0 else gap

    def _moved(self, unknown: Vector, error: float) -> Vector:
        """Newton's steps to the number of times `unknown` at which the gaps come to `error`, or near it."""
        s, size = self.sample, np.abs(self.shape)
        most = np.where(self.shape >= 0, s.confidence, 1.0 - s.confidence)
        times, gap = np.zeros((len(size), 1)), size
        for _ in range(_MOVES):
            slope = np.where((gap > 0) & (gap < most), unknown, 0.0) @ s.share
            times += ((error - gap @ s.share) / np.maximum(slope, 1e-12))[:, None]
            gap = np.clip(size + times * unknown, 0.0, most)
        nothing = gap @ s.share <= 0
        gap[nothing] = size[nothing]
        return np.copysign(gap, self.shape)

    def _pushed(self, gap: Vector, error: float) -> Vector:
        """Shapes that lie at their bounds before the size is reached are moved towards the largest gaps there are.

        The rest moves with them, and turns into gaps of this side where it is small first: added to what was moved it
        would take the error away again, and one row at its bound would leave an end of 24 % to a part of .02 %.
        """
        s = self.sample

        def missing(gaps: Vector) -> Vector:
            return np.asarray(gap_error(s.share, gaps, self.norm)) - error

        short = np.flatnonzero(missing(gap) < -1e-3 * error)
        if not len(short):
            return gap
        start, way = gap[short], s.far(self.norm) - gap[short]
        low, high = np.zeros(len(short)), np.ones(len(short))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = missing(start + middle[:, None] * way) >= 0
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        gap = gap.copy()
        gap[short] = start + high[:, None] * way
        return gap


def families(sample: GapSample, norm: Norm, drawn: Vector, unknown: Vector | None = None) -> list[Family]:
    """Family of the plausible gaps `drawn`; for a side of the ECE two: the other side as drawn, and without it."""
    if norm not in ("over", "under"):
        return [Family(sample, norm, _with_size(sample, drawn, norm), unknown=unknown)]
    sign = 1.0 if norm == "over" else -1.0
    side = np.maximum(sign * drawn, 0.0)
    none = side @ sample.share < 1e-3 * (np.abs(drawn) @ sample.share)
    if none.any():  # nothing there: as much as one standard deviation would hide
        smoothed = (sample.accuracy * sample.rows + 0.5) / (sample.rows + 1.0)
        sd = np.sqrt(smoothed * (1.0 - smoothed) / sample.rows)
        near = np.maximum(sign * drawn[none] + sd, 0.0)
        near[near @ sample.share <= 0] = sd
        side[none] = near
    return [Family(sample, norm, sign * side, np.where(side > 0, 0.0, drawn)), Family(sample, norm, sign * side)]


def _with_size(sample: GapSample, drawn: Vector, norm: Norm) -> Vector:
    """A draw without any gap has no shape: the largest gaps take its place."""
    size = np.asarray(gap_error(sample.share, drawn, norm))
    return drawn if np.all(size > 1e-12) else np.where((size > 1e-12)[:, None], drawn, sample.far(norm))


def observable(family: Family, *, share_noise: bool = True, stretch: float = 1.0) -> Callable[[float], Vector]:
    """The errors (draws,) that would be observed under a true one.

    `share_noise`: how many rows fall into each bin is chance too, which matters where gaps differ between bins.
    `stretch`: factor on the deviations from their mean, where bins are not independent.
    """
    sample, norm = family.sample, family.norm
    normals = spread_normals(len(family.shape))
    total = sample.effective_rows
    # The same chance for every size, so that neighbours differ by the size and little by chance.
    hits = HitDraws(sample.counts, len(family.shape), _SEED + 3)

    def observed_given(error: float) -> Vector:
        truth = family.of_size(error)
        gaps = observed_gaps(sample, truth, hits)
        drawn = np.asarray(gap_error(sample.share, gaps, norm))
        if share_noise and norm != "max":
            each = contribution(truth, norm)
            between = np.sqrt(np.maximum(each**2 @ sample.share - (each @ sample.share) ** 2, 0.0) / total)
            drawn = drawn + normals * (between if norm != "rms" else between / max(2 * error, 1e-9))
        if stretch != 1.0:
            drawn = drawn.mean() + stretch * (drawn - drawn.mean())
        return drawn

    return observed_given
