"""Shares by held-out likelihood: the maximum by brute force, and what pseudo-rows do."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.pooling import HeldOut, folds_of, folds_worth, shares


def made(rows: int) -> HeldOut:
    rng = np.random.default_rng(0)
    return HeldOut(rng.gamma(2.0, 0.4, (2, rows)), rng.uniform(0.5, 1.5, rows), np.arange(rows))


def test_the_shares_are_the_top_of_the_penalised_likelihood() -> None:
    found, prior = made(60), np.array([0.8, 0.2])
    grid = np.linspace(1e-4, 1 - 1e-4, 9999)
    mixed = grid[:, None] * np.exp(-found.losses[0]) + (1 - grid[:, None]) * np.exp(-found.losses[1])
    scores = np.log(mixed) @ found.weights + 20 * (0.8 * np.log(grid) + 0.2 * np.log(1 - grid))
    assert shares(found, prior)[0] == pytest.approx(grid[scores.argmax()], abs=2e-4)


def test_no_rows_leave_the_prior() -> None:
    nothing = HeldOut(np.zeros((2, 0)), np.zeros(0), np.zeros(0, np.int64))
    assert shares(nothing, np.array([0.9, 0.1])) == pytest.approx([0.9, 0.1])


def test_folds_share_the_rows_out() -> None:
    masks = folds_of(23, 5, 0)
    assert np.array_equal(np.sum(masks, axis=0), np.ones(23))
    assert len(folds_of(23, 5, 0, 1)) == 1


def test_folds_are_held_out_until_two_thousand_rows_have_been() -> None:
    assert [folds_worth(n, heavy=False) for n in (100, 2000, 5000, 10_000, 90_000)] == [5, 5, 2, 1, 1]
    assert folds_worth(100, heavy=True) == 1


def test_more_members_may_join_on_the_same_rows() -> None:
    found, more = made(60), made(60)
    both = found.and_also(more)
    assert both.losses.shape == (4, 60)
    assert np.array_equal(both.rows, found.rows)
    assert found.and_also(HeldOut(np.zeros(0), found.weights, found.rows)) is found
