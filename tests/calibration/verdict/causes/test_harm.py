import numpy as np
import pytest

from calibrant.calibration.verdict.case import JudgedRows
from calibrant.calibration.verdict.causes.harm import harm_cause, nll_change


def test_the_change_by_hand():
    # p of the label .5 before; .25 and .75 after: log 2 and log(2/3), mean .1438, sd of two .7768, t(1) 12.706
    before, after = np.log([[0.5, 0.5], [0.5, 0.5]]), np.log([[0.25, 0.75], [0.75, 0.25]])
    change = nll_change(before, after, np.array([0, 0]))
    assert change.mean == pytest.approx((np.log(2) + np.log(2 / 3)) / 2)
    half = 12.7062 * (np.log(2) - np.log(2 / 3)) / 2 / np.sqrt(2) * np.sqrt(2) / 1
    assert change.high - change.mean == pytest.approx(half, rel=1e-4)


def test_weights_count_rows_of_a_class():
    before, after = np.log([[0.5, 0.5], [0.5, 0.5]]), np.log([[0.25, 0.75], [0.5, 0.5]])
    assert nll_change(before, after, np.array([0, 1]), np.array([3.0, 1.0])).mean == pytest.approx(0.75 * np.log(2))


def rows(n, scale):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    z = 1.5 * (1.5 * np.eye(3)[y] + rng.normal(size=(n, 3)))  # right as it is
    return JudgedRows(z, scale * z, y, n)


def test_a_map_that_spoils_is_called_harmful_and_one_that_does_not_is_not():
    cause = harm_cause(rows(1000, 4.0), "calibrator")
    assert cause is not None
    assert cause.kind == "harmful-calibrator"
    assert cause.evidence["low"] > 0
    assert harm_cause(rows(1000, 1.0), "calibrator") is None
    assert harm_cause(rows(1000, 1.02), "calibrator") is None


def test_below_a_hundred_rows_nothing_is_said():
    assert harm_cause(rows(99, 4.0), "calibrator") is None
    assert harm_cause(rows(100, 4.0), "calibrator") is not None


def test_an_impossible_label_does_not_break_it():
    before, after = np.log([[0.5, 0.5]] * 3), np.array([[0.0, -np.inf], [0.0, 0.0], [0.0, 0.0]])
    assert np.isfinite(nll_change(before, after, np.array([1, 0, 0])).mean)
