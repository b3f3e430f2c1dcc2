import numpy as np
import pytest

from calibrant.calibration.statistics.accumulate import statistics_of_probabilities
from calibrant.calibration.verdict.causes.excess import Excess


def test_by_hand():
    # claims .9, .6, .7; right, wrong, right: (2.2 - 2) / 3; sum c (1 - c) = .09 + .24 + .21 = .54
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    excess = Excess.of(statistics_of_probabilities(probs, [0, 1, 1]))
    assert excess.gap == pytest.approx(0.2 / 3)
    assert excess.sd == pytest.approx(np.sqrt(0.54) / 3)
    rows = Excess.of_rows(np.array([0.9, 0.6, 0.7]), np.array([True, False, True]))
    assert (rows.gap, rows.sd) == pytest.approx((excess.gap, excess.sd))


def test_weights_count_rows_of_a_class_as_often_as_they_say():
    # weights 2 and .5 of mean one: sum w (c - r) = 2 (.9 - 1) + .5 (.6 - 0) + .5 (.7 - 1) = -.05, over 3
    probs = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    weighted = Excess.of(statistics_of_probabilities(probs, [0, 1, 1]).weighted([2.0, 0.5]))
    assert weighted.gap == pytest.approx(-0.05 / 3)
    assert weighted.sd == pytest.approx(np.sqrt(4 * 0.09 + 0.25 * (0.24 + 0.21)) / 3)


def test_many_rows_are_judged_by_the_normal_distribution():
    # 100 rows that claim .8, of which 70 are right: z = 10 / sqrt(16) = 2.5, p = .01242
    probs = np.tile([0.8, 0.2], (100, 1))
    excess = Excess.of(statistics_of_probabilities(probs, (np.arange(100) >= 70).astype(int)))
    assert excess.p == pytest.approx(0.01242, abs=1e-5)
    assert excess.chance == pytest.approx(1.96 * 0.04, abs=1e-4)


def test_certain_claims_have_no_chance_to_hide_behind():
    sure = np.array([[1.0, 0.0]] * 4)
    assert Excess.of(statistics_of_probabilities(sure, [0, 0, 0, 1])).p == 0.0
    assert Excess.of(statistics_of_probabilities(sure, [0, 0, 0, 0])).p == 1.0
