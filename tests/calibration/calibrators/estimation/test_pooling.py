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


def test_the_temperature_of_a_mixture_is_where_held_out_rows_and_its_prior_agree() -> None:
    """By brute force, on weighted rows, of which every second one has all classes."""
    rng = np.random.default_rng(3)
    log_p = tuple(np.log(rng.dirichlet(np.ones(4), 60)).astype(np.float32) for _ in range(2))
    labels, weights = log_p[0].argmax(axis=1), rng.uniform(0.5, 1.5, 120)
    every = np.repeat(labels, 2)
    found = HeldOut(np.zeros((2, 120)), weights, np.arange(120), log_p, 2)
    q = 0.9 * (0.6 * np.exp(log_p[0]) + 0.4 * np.exp(log_p[1])) + 0.1 / 4
    w = weights[::2]
    n = w.sum() ** 2 / (w @ w)

    def score(t: float) -> float:
        p = q ** (1 / t)
        losses = -np.log((p / p.sum(axis=1, keepdims=True))[np.arange(60), labels])
        return float(n * (w @ losses) / w.sum() + 0.5 * (np.log(t) / 0.1) ** 2)

    grid = np.geomspace(0.5, 1.5, 4001)
    best = grid[np.argmin([score(t) for t in grid])]
    assert 0.6 < best < 0.95
    assert found.temperature(np.array([0.6, 0.4]), 0.1, every, weighted=True) == pytest.approx(best, rel=1e-3)
    more = np.concatenate([every, every])  # of which half were held out: what they say counts less
    assert best < found.temperature(np.array([0.6, 0.4]), 0.1, more, weighted=True) < 1.0
    elsewhere = tuple(np.log(np.roll(np.exp(p), 1, axis=1)) for p in log_p)
    wrong = HeldOut(np.zeros((2, 120)), weights, np.arange(120), elsewhere, 2)
    assert wrong.temperature(np.array([0.6, 0.4]), 0.1, every, weighted=True) == 1.0
