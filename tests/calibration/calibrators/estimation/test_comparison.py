"""What is said of the members of a choice: intervals against Student's by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.calibrators.estimation.comparison import interval


@pytest.mark.parametrize("weights", [np.ones(4), np.full(4, 3.0)])
def test_the_interval_of_a_loss_is_students_of_as_many_rows_as_there_are(weights: np.ndarray) -> None:
    low, high = interval(np.array([1.0, 2.0, 3.0, 6.0]), weights)
    half = 3.18245 * np.sqrt(14 / 3 / 4)  # mean 3, s^2 = 14/3, t(3) at 97.5 %
    assert (low, high) == pytest.approx((3 - half, 3 + half), abs=1e-4)
