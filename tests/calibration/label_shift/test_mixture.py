"""EM by hand, and the sensitivity to the map against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.label_shift.mixture import PSEUDO_ROWS, likeliest_prior, prior_covariance


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
