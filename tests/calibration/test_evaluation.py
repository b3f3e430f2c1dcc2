"""What `evaluate` weighs rows by."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import evaluate


def test_a_uniform_target_is_uniform_over_the_classes_that_have_rows() -> None:
    # Six rows of class 0, two of class 1, none of class 2: weights 2/3 and 2, so that both weigh the same.
    probs = np.array([[0.7, 0.2, 0.1]] * 6 + [[0.5, 0.4, 0.1]] * 2)
    found = evaluate(probs, [0] * 6 + [1] * 2, target_prior="uniform")
    assert found.target_prior == pytest.approx((0.5, 0.5, 0.0))
    assert found.accuracy.value == pytest.approx(0.5)
    assert found.effective_rows == pytest.approx(8**2 / (6 * (2 / 3) ** 2 + 2 * 2**2))
