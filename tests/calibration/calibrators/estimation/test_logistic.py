"""Penalised logistic regression: a case by hand, cells against rows, and separated data."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.logistic import fit_logistic


def test_one_constant_is_the_log_odds_of_the_hits() -> None:
    found = fit_logistic(np.ones((1, 1)), np.array([30.0]), np.array([40.0]), np.zeros(1), np.zeros(1))
    assert found[0] == pytest.approx(np.log(3.0), abs=1e-9)


def test_a_cell_is_the_rows_in_it() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, 500).astype(float)
    hit = (rng.random(500) < 1 / (1 + np.exp(-x - 0.5))).astype(float)
    rows = fit_logistic(np.c_[np.ones(500), x], hit, np.ones(500), np.zeros(2), np.full(2, 0.1))
    values, index = np.unique(x, return_inverse=True)
    cells = fit_logistic(
        np.c_[np.ones(7), values],
        np.bincount(index, hit),
        np.bincount(index).astype(float),
        np.zeros(2),
        np.full(2, 0.1),
    )
    assert cells == pytest.approx(rows, abs=1e-8)
    gradient = np.c_[np.ones(500), x].T @ (1 / (1 + np.exp(-(np.c_[np.ones(500), x] @ rows))) - hit) + 0.2 * rows
    assert gradient == pytest.approx([0, 0], abs=1e-7)


def test_separated_rows_stay_finite_under_a_penalty() -> None:
    found = fit_logistic(
        np.c_[np.ones(4), [-2, -1, 1, 2]], np.array([0.0, 0, 1, 1]), np.ones(4), np.zeros(2), np.full(2, 1e-3)
    )
    assert np.isfinite(found).all()
    assert found[1] > 1
