"""Smooth ECE where its value is known."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import metrics
from calibrant.calibration.metrics.smooth import fixed_point


def test_smooth_ece_counts_confidence_one_in_full() -> None:
    # Half the rows: confidence 1, right. Half: confidence .6, right on 40 %. True error .5 * 0 + .5 * .2 = .1, smeared
    # little: the popular implementation says .1327.
    probs = np.array([[1.0, 0.0]] * 5000 + [[0.6, 0.4]] * 5000)
    labels = np.array([0] * 5000 + [0] * 2000 + [1] * 3000)
    assert metrics.smooth_ece(probs, labels) == pytest.approx(0.1, abs=2e-3)


@pytest.mark.parametrize("power", [1, 4, 8])
def test_the_fixed_point_is_found_to_the_last_digits_of_a_steep_error_too(power: int) -> None:
    """c / s^k = s at s = c^(1 / (k + 1)); where it is steep the secant needs the bisection to come close first."""
    found = fixed_point(lambda s: 0.05 ** (power + 1) / s**power)
    assert found.bandwidth == pytest.approx(0.05, rel=1e-11)
    assert found.value == pytest.approx(0.05, rel=1e-10)
