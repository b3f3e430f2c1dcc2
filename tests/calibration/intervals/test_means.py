"""Intervals of shares and means, by hand."""

from __future__ import annotations

import math

import pytest

from calibrant.calibration.intervals.means import (
    loss_interval,
    mean_interval,
    paired_share_interval,
    share_interval,
)


def test_wilson_by_hand() -> None:
    # 8 of 10: known values 0.490 and 0.943 (Agresti & Coull 1998)
    low, high = share_interval(0.8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)
    assert share_interval(1.0, 5)[1] == 1.0
    assert share_interval(0.0, 5)[0] == 0.0


def test_one_row_has_no_interval_of_a_mean() -> None:
    assert mean_interval(0.3, 0.0, 1) == (None, None)
    low, high = mean_interval(0.0, 1.0, 4)
    assert low == pytest.approx(-3.182446 / 2, abs=1e-5)  # t with 3 degrees of freedom
    assert high == -(low or 0)


def test_a_paired_difference_by_hand() -> None:
    # 6 gained, 2 lost of 38: n = 40, centre 4 / 40, variance (9 / 40 - .01) / 40
    low, high = paired_share_interval(6, 2, 38)
    half = 1.959964 * math.sqrt((0.225 - 0.01) / 40)
    assert (low, high) == (pytest.approx(0.1 - half, abs=1e-6), pytest.approx(0.1 + half, abs=1e-6))


def test_rows_that_all_agree_leave_a_difference_open() -> None:
    low, high = paired_share_interval(0, 0, 30)
    assert low == pytest.approx(-high)
    assert 0.03 < high < 0.1


def test_interval_of_losses_by_hand() -> None:
    """m = .5, s^2 = .04, n = 101: x = 1.98397 * .2 / (.5 sqrt 101) = .0789646, f = 1 + x + x^2 / 2 = 1.0820823."""
    low, high = loss_interval(0.5, 0.04, 101, claimed=(0.4, 0.01))
    assert (low, high) == (pytest.approx(0.5 / 1.0820823), pytest.approx(0.5 * 1.0820823))


def test_rows_that_all_went_well_leave_room_for_what_failures_cost() -> None:
    _, told = loss_interval(0.01, 0.0, 30, claimed=(0.01, 0.0))
    _, high = loss_interval(0.01, 0.0, 30, claimed=(0.05, 0.4))
    assert told is not None
    assert high is not None
    assert told < 0.011
    assert high > 0.1


def test_a_loss_interval_holds_its_mean_and_ends_at_the_largest_loss() -> None:
    for mean, variance, rows in ((1.9, 4.0, 3.0), (0.0, 0.0, 5.0), (1e-9, 1e-12, 2.0), (0.3, 0.2, 40.0)):
        low, high = loss_interval(mean, variance, rows, claimed=(0.2, 0.3), most=2.0)
        assert low is not None
        assert high is not None
        assert 0 <= low <= mean <= high <= 2.0
    assert loss_interval(0.3, 0.2, 1, claimed=(0.2, 0.3)) == (None, None)
