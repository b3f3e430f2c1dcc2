"""A test turned around, where the distribution is known: observed = truth + U(0, 1)."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.intervals.inversion import turn_around

NOISE = np.linspace(0, 1, 100_001)


def test_at_no_error_the_test_has_one_side() -> None:
    """Zero belongs to the interval up to the 95 % quantile of what it gives, not up to the 97.5 % one."""
    assert turn_around(0.949, 5.0, lambda truth: truth + NOISE).low == 0.0
    assert turn_around(0.951, 5.0, lambda truth: truth + NOISE).low > 0.0


def test_far_from_it_both_sides_have_a_fortieth() -> None:
    """To within a twentieth of the standard deviation, 0.29, which is as near as draws can tell."""
    found = turn_around(4.0, 5.0, lambda truth: truth + NOISE)
    assert (found.low, found.middle, found.high) == pytest.approx((4.0 - 0.975, 3.5, 4.0 - 0.025), abs=0.015)


def test_half_of_all_samples_show_more_under_the_middle_and_never_less_than_none() -> None:
    assert turn_around(0.3, 5.0, lambda truth: truth + NOISE).middle == 0.0
    assert turn_around(0.8, 5.0, lambda truth: truth + NOISE).middle == pytest.approx(0.3, abs=0.015)


def test_what_lies_beyond_the_largest_error_ends_there() -> None:
    found = turn_around(9.0, 5.0, lambda truth: truth + NOISE)
    assert (found.low, found.high) == (5.0, 5.0)


def test_of_few_draws_a_fortieth_lies_beyond_each_end_on_average() -> None:
    """Of 39 even draws, the outermost are where 1/40 begins: places i / 40 of the unit interval in the mean."""
    draws = np.arange(1, 40) / 40.0

    found = turn_around(50.0, 100.0, lambda e: e + draws)

    assert found.low == pytest.approx(50.0 - 39 / 40, abs=0.02)
    assert found.high == pytest.approx(50.0 - 1 / 40, abs=0.02)
