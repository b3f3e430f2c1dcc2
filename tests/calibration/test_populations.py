"""Is a difference of class shares a shift, or noise?"""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.populations import Population, fitted_population, shift_between


def test_effect_by_hand() -> None:
    """Counts 30, 10 against 10, 30: X^2 = 20, df 1, N 80."""
    found = shift_between(Population.counted([30, 10]), Population.counted([10, 30]))
    assert found.effect == pytest.approx(19 / 80)
    assert found.p == pytest.approx(0.001)
    assert found.clear


def test_against_given_shares_by_hand() -> None:
    """30, 10 where 20, 20 are expected: X^2 = 10, df 1, N 40."""
    found = shift_between(Population.counted([30, 10]), Population(np.array([0.5, 0.5])))
    assert found.effect == pytest.approx(9 / 40)
    assert found.clear


def test_samples_of_one_population_are_no_shift() -> None:
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(10))
    clear = [
        shift_between(*(Population.counted(rng.multinomial(n, share)) for n in (300, 200)), seed=i).clear
        for i in range(100)
    ]
    assert sum(clear) <= 4  # P(more) < .004 at a rate of .01


def test_a_large_sample_with_a_small_change_is_not_named() -> None:
    a, b = Population.counted([50000, 50000]), Population.counted([51500, 48500])
    found = shift_between(a, b)
    assert found.p < 0.01
    assert not found.clear


def test_equal_given_shares_are_one_population() -> None:
    half = Population(np.array([0.5, 0.5]))
    assert not shift_between(half, half).clear
    assert shift_between(half, Population(np.array([0.9, 0.1]))).clear


def test_a_class_that_cannot_occur_but_does_is_a_shift() -> None:
    assert shift_between(Population.counted([9, 1]), Population(np.array([1.0, 0.0]))).clear


def test_what_a_calibrator_file_says_of_its_rows() -> None:
    counted = fitted_population({"prior": [0.75, 0.25], "rows": 40})
    assert counted is not None
    assert counted.counts.tolist() == [30, 10]
    asked = fitted_population({"prior": [0.75, 0.25], "rows": 40, "weighted": True, "population": [0.5, 0.5]})
    assert asked is not None
    assert asked.rows is None
    assert fitted_population({"prior": [0.75, 0.25], "rows": 40, "weighted": True}) is None
