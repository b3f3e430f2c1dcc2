"""Drawn counts are whole, possible, and as far apart as binomial ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrant.calibration.intervals.counts import HitDraws

DRAWS = 40_000


def binomial_below(n: int, a: float) -> np.ndarray:
    """P(count <= k) for k = 0..n, from the definition."""
    pmf = [math.comb(n, k) * a**k * (1 - a) ** (n - k) for k in range(n + 1)]
    return np.cumsum(pmf)


@pytest.mark.parametrize(("n", "a"), [(3, 0.5), (10, 0.2), (13, 0.4), (20, 0.3), (100, 0.04), (400, 0.01), (300, 0.9)])
def test_counts_follow_the_binomial_distribution(n: int, a: float) -> None:
    hits = HitDraws(np.array([n]), DRAWS, 0).shares(np.full((DRAWS, 1), a))[:, 0] * n
    np.testing.assert_allclose(hits, np.rint(hits), atol=1e-9)
    assert hits.min() >= 0
    assert hits.max() <= n
    below = np.searchsorted(np.sort(hits), np.arange(n + 1) + 0.5) / DRAWS
    assert np.abs(below - binomial_below(n, a)).max() < 0.003 + 0.009  # .009: Kolmogorov's bound at p = .003
    assert hits.mean() / n == pytest.approx(a, abs=4.5 * math.sqrt(a * (1 - a) / n / DRAWS) + 0.002 * a)
    assert hits.std() == pytest.approx(math.sqrt(n * a * (1 - a)), rel=0.02)


def test_certain_cells_have_no_noise() -> None:
    shares = HitDraws(np.array([5, 5, 1000]), 50, 1).shares(np.tile([0.0, 1.0, 1.0], (50, 1)))
    assert (shares == [0.0, 1.0, 1.0]).all()


def test_the_same_accuracies_show_the_same_counts() -> None:
    draws, accuracy = HitDraws(np.array([4, 90]), 30, 2), np.full((30, 2), 0.3)
    assert np.array_equal(draws.shares(accuracy), draws.shares(accuracy))


def test_few_draws_have_the_spread_of_sums_right() -> None:
    """Any sum over the cells has its sd to the rounding of counts; independent draws are off by 4 % here."""
    rows, accuracy = np.full(12, 4000), np.full((300, 12), 0.3)
    for seed in range(8):
        sums = HitDraws(rows, 300, seed).shares(accuracy).sum(axis=1)
        assert sums.std() == pytest.approx(math.sqrt(12 * 0.3 * 0.7 / 4000), rel=0.003)
        assert sums.mean() == pytest.approx(12 * 0.3, abs=1e-4)


def test_more_cells_than_draws_are_spread_one_by_one() -> None:
    shares = HitDraws(np.full(200, 4000), 100, 3).shares(np.full((100, 200), 0.3))
    assert shares.std(axis=0) == pytest.approx(np.full(200, math.sqrt(0.3 * 0.7 / 4000)), rel=0.01)
