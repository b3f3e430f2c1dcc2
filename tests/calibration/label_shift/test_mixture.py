"""EM by hand, and the sensitivity to the map against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.label_shift.mixture import (
    PSEUDO_ROWS,
    likeliest_prior,
    prior_covariance,
    squared_misfit,
)


def test_rows_that_say_their_class_are_counted() -> None:
    ratios = np.zeros((10, 2))
    ratios[:7, 0] = ratios[7:, 1] = 2.0
    assert likeliest_prior(ratios) == pytest.approx([(7 + PSEUDO_ROWS) / 11, (3 + PSEUDO_ROWS) / 11], abs=1e-6)


def test_a_class_that_nobody_shows_keeps_a_share() -> None:
    ratios = np.tile([2.0, 0.0], (40, 1))
    assert likeliest_prior(ratios)[1] == pytest.approx(0.5 / 41, abs=1e-5)


def test_sure_rows_have_the_covariance_of_a_proportion() -> None:
    ratios = np.zeros((100, 2))
    ratios[:30, 0] = ratios[30:, 1] = 2.0
    prior = np.array([0.3, 0.7])
    found = prior_covariance(ratios, prior, np.log(np.maximum(ratios / 2, 1e-12)), np.zeros((3, 3)))
    assert found == pytest.approx(0.3 * 0.7 / 100 * np.array([[1, -1], [-1, 1]]), rel=1e-6)


def test_the_error_of_the_map_is_carried_over_as_finite_differences_say() -> None:
    rng = np.random.default_rng(3)
    log_p = np.log(rng.dirichlet(np.ones(3), 400))
    base, classes = np.exp(log_p).mean(axis=0), 3  # so that the likeliest prior lies inside

    def prior_of(scale: float, bias: np.ndarray) -> np.ndarray:
        q = np.exp(scale * log_p + bias)
        return likeliest_prior(q / q.sum(axis=1, keepdims=True) / base)

    prior = prior_of(1.0, np.zeros(classes))
    q = np.exp(log_p)
    ratios = q / base
    none = prior_covariance(ratios, prior, log_p, np.zeros((4, 4)))
    step = 1e-3
    for parameter in range(4):
        of_map = np.zeros((4, 4))
        of_map[parameter, parameter] = 1.0
        moved = [
            prior_of(1 + (s if parameter == 0 else 0), np.eye(classes)[parameter - 1] * (s if parameter else 0))
            for s in (-step, step)
        ]
        slope = (moved[1] - moved[0]) / (2 * step)
        found = prior_covariance(ratios, prior, log_p, of_map) - none
        # EM adds half a row a class, which the information leaves out: a few percent at 400 vague rows.
        assert found == pytest.approx(np.outer(slope, slope), rel=0.1, abs=2e-4), parameter


def test_what_labelled_rows_tell_of_a_wrong_map_by_hand() -> None:
    """Pictures A and B: A is .8 of class 0 and .2 of class 1, but q says .9 and .1.

    Of served rows with 68 A in 100 the true share is .8 (.8 * .8 + .2 * .2 = .68). EM says .725, where the scores
    .68 * 1.6 / 1.36 and .32 * 1.6 / .64 are even: .075 off. A share of A in 100 rows a class has a variance of
    .16 / 99, and the difference of .6 between the classes turns that into (.725^2 + .275^2) * .16 / 99 / .36 = .002699.
    """
    a, b = [1.8, 0.2], [0.2, 1.8]
    prior, served = np.array([0.725, 0.275]), np.array([a] * 68 + [b] * 32)

    def off(rows: int) -> np.ndarray:
        of_class = (rows * 8 // 10, rows - rows * 8 // 10)
        known = np.array([a] * of_class[0] + [b] * of_class[1] + [a] * of_class[1] + [b] * of_class[0])
        return squared_misfit(known, np.repeat([0, 1], rows), served, prior)

    assert off(100) == pytest.approx([0.075**2 - 0.002699] * 2, abs=1e-6)
    assert off(40_000) == pytest.approx([0.075**2] * 2, abs=1e-5)
    assert off(30) == pytest.approx([0.0, 0.0])  # chance would show as much


def test_the_only_row_of_a_class_tells_no_misfit() -> None:
    """Ten rows of class 0 of which eight are A; two rows of class 1, both B, seem to prove that it never shows A."""
    a, b = [1.8, 0.2], [0.2, 1.8]
    prior, served = np.array([0.725, 0.275]), np.array([a] * 68 + [b] * 32)
    one, two = (
        squared_misfit(np.array([a] * 8 + [b] * 2 + [b] * rows), np.array([0] * 10 + [1] * rows), served, prior)
        for rows in (1, 2)
    )
    # .68 A would be a share of .85: .125 off, and .8 of class 0 being A has a variance of .16 / 9.
    assert two[1] == pytest.approx(0.125**2 - 0.725**2 * 0.16 / 9 / 0.64, abs=1e-6)
    assert one[1] == 0.0
