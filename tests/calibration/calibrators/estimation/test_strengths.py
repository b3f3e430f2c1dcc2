"""Strengths of the penalty averaged: rows without a message stay near the identity, and no choice can go far wrong."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.near import fit_near
from calibrant.calibration.calibrators.estimation.strengths import fit_averaged
from calibrant.calibration.softmax import log_softmax
from tests.calibration.calibrators.estimation.test_near import drawn


def test_rows_that_follow_the_temperature_stay_near_it_and_shifted_ones_leave_it() -> None:
    calm = [fit_averaged(*drawn(60, np.zeros(5), seed), None, None, full=True) for seed in range(10)]
    assert np.mean([np.abs(found.a - np.eye(5)).max() for found in calm]) < 0.05
    x, y = drawn(600, np.array([2.0, 0.0, 0.0, 0.0, -2.0]), 2)
    moved = fit_averaged(x, y, None, None, full=False)
    assert moved.c[0] - moved.c[4] == pytest.approx(4.0, abs=1.2)


def test_the_map_is_the_sum_of_shares_and_maps_and_loses_no_more_than_they_do_on_average() -> None:
    x, y = drawn(150, np.array([1.0, 0.0, -1.0]), 5)
    found = fit_averaged(x, y, None, None, full=True)
    shares = found.notes["shares"]
    assert sum(shares.values()) == pytest.approx(1.0)
    parts = [(np.eye(3), np.zeros(3), shares.pop("none beyond the temperature"))]
    parts += [(m.a, m.c, w) for s, w in shares.items() for m in [fit_near(x, y, None, None, float(s), full=True)]]
    assert found.a == pytest.approx(sum(w * a for a, _, w in parts), abs=1e-3)
    assert found.c == pytest.approx(sum(w * c for _, c, w in parts), abs=1e-3)
    fresh, truth = drawn(3000, np.array([1.0, 0.0, -1.0]), 6)
    losses = [-log_softmax(fresh @ a.T + c)[np.arange(3000), truth].mean() for a, c, _ in parts]
    whole = -log_softmax(found(fresh))[np.arange(3000), truth].mean()
    assert whole <= sum(w * loss for (_, _, w), loss in zip(parts, losses, strict=True)) + 1e-4


def test_rows_of_weight_zero_and_repeated_rows_count_as_they_should() -> None:
    x, y = drawn(200, np.array([1.5, 0.0, -1.5]), 7)
    w = np.r_[np.ones(150), np.zeros(50)]
    y[150:] = 0  # would pull if they counted
    found = fit_averaged(x, y, w, None, full=False)
    alone = fit_averaged(x[:150], y[:150], None, None, full=False)
    assert found.c == pytest.approx(alone.c, abs=0.1)


def test_fewer_than_ten_rows_leave_the_identity() -> None:
    found = fit_averaged(*drawn(9, np.zeros(4), 0), None, None, full=True)
    assert found.strength == np.inf
    assert np.array_equal(found.a, np.ones(4))
