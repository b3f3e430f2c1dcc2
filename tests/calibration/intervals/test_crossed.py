"""Differences over seeds and images: both noises are in the interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrant.calibration.intervals.crossed import crossed_mean


def test_two_seeds_and_three_images_by_hand() -> None:
    """d = [[1, 2, 6], [3, 2, 4]]: all means 3, so v_s = 0; image means 2, 2, 5 with variance 3; residuals
    [-1, 0, 1], [1, 0, -1]: 4 / (1 * 2) / 6 = 1/3. v = max(0 + 1 - 1/3, 0, 1) = 1; freedom 1 / (1/2 + (1/9)/2) = 1.8.
    """
    found = crossed_mean(np.asarray([[1.0, 2.0, 6.0], [3.0, 2.0, 4.0]]))
    assert found.low is not None
    assert found.high is not None
    assert found.mean == 3
    assert found.high - 3 == pytest.approx(3 - found.low)
    assert found.high - 3 == pytest.approx(4.794881, rel=1e-5)  # t of 1.8 degrees of freedom, between 12.71 and 4.30


def test_seeds_that_all_give_the_same_leave_the_images_interval() -> None:
    d = np.tile(np.asarray([1.0, 0.0, 0.0, 1.0, -1.0]), (3, 1))
    alone, three = crossed_mean(d[:1]), crossed_mean(d)
    assert (three.low, three.high) == pytest.approx((alone.low, alone.high))
    half = 2.7764451 * math.sqrt(0.7 / 5)  # variance .7 of five rows, t of 4 degrees of freedom
    assert three.high == pytest.approx(0.2 + half, rel=1e-6)


@pytest.mark.parametrize("d", [np.zeros((3, 5)), np.full((3, 5), 0.1), np.ones((3, 1))])
def test_no_variance_is_no_interval(d: np.ndarray) -> None:
    found = crossed_mean(d)
    assert (found.low, found.high, found.p) == (None, None, None)


def test_seeds_that_differ_widen_what_images_alone_would_say() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=500)
    found = crossed_mean(rows + np.asarray([[-0.3], [0.0], [0.3]]))
    assert found.high is not None
    assert found.high - found.mean > 5 * 1.96 / math.sqrt(500)


@pytest.mark.slow
@pytest.mark.parametrize("seed_noise", [0.0, 0.005, 0.05])
def test_coverage(seed_noise: float) -> None:
    """Two heads, right by the difficulty of a row and by luck; one is better by .02, and by what its seed adds."""
    rng = np.random.default_rng(5)
    hits, sims, n = 0, 600, 3000
    for _ in range(sims):
        easy = rng.uniform(0.3, 0.7, n)
        d = np.empty((3, n))
        luck = rng.random((2, n))
        for s in range(3):
            shift = 0.02 + rng.normal(0, seed_noise)
            again = luck if seed_noise == 0 else np.where(rng.random((2, n)) < 0.8, luck, rng.random((2, n)))
            d[s] = (again[0] < easy + shift).astype(float) - (again[1] < easy)
        found = crossed_mean(d)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 0.02 <= found.high
    assert 0.925 <= hits / sims <= 0.985
