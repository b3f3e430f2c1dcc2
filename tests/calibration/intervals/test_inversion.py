"""A test turned around, where the distribution is known."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.intervals.inversion import crossing, first_true, turn_around

NOISE = np.linspace(0, 1, 100_001)  # uniform
GRID = np.linspace(0, 5, 501)


def test_at_no_error_the_test_has_one_side() -> None:
    """Observed = truth + U(0, 1). Zero belongs to the interval up to the 95 % quantile of what it gives, not 97.5 %."""
    assert turn_around(0.949, GRID, lambda truth: truth + NOISE)[0] == 0.0
    assert turn_around(0.951, GRID, lambda truth: truth + NOISE)[0] > 0.0


def test_far_from_it_both_sides_have_a_fortieth() -> None:
    low, high = turn_around(4.0, GRID, lambda truth: truth + NOISE)
    assert low == pytest.approx(4.0 - 0.975, abs=1e-3)
    assert high == pytest.approx(4.0 - 0.025, abs=1e-3)


def test_what_lies_beyond_the_grid_ends_at_its_end() -> None:
    assert turn_around(9.0, GRID, lambda truth: truth + NOISE) == (5.0, 5.0)


@pytest.mark.parametrize("at", [0, 1, 7, 10])
def test_the_first_index_of_a_condition_that_stays_true(at: int) -> None:
    assert first_true(10, lambda i: i >= at) == at


def test_a_crossing_is_found_between_two_points_of_the_grid() -> None:
    assert crossing(np.array([0.0, 2.0]), 1, -1.0, 3.0) == pytest.approx(0.5)
    assert crossing(np.array([0.0, 2.0]), 1, -np.inf, 3.0) == 2.0
