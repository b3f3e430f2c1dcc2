"""NLL, Brier score and its parts, by hand and by their identity."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import metrics

THREE = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
LABELS = np.array([0, 1, 1])  # right, wrong, right


def test_three_rows_by_hand() -> None:
    assert metrics.nll(THREE, LABELS) == pytest.approx(-(np.log(0.8) + np.log(0.4) + np.log(0.7)) / 3)
    assert metrics.brier(THREE, LABELS) == pytest.approx((2 * 0.04 + 2 * 0.36 + 2 * 0.09) / 3)


def test_a_label_of_probability_zero_costs_infinity_unless_a_floor_is_given() -> None:
    probs = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert metrics.nll(probs, [0, 1]) == float("inf")
    assert metrics.nll(probs, [0, 1], floor=1e-6) == pytest.approx(np.log(1e6) / 2)
    assert metrics.nll(probs, [0, 1], weights=[1.0, 0.0]) == 0.0


def test_brier_parts_sum_to_the_score() -> None:
    rng = np.random.default_rng(4)
    probs, labels = rng.dirichlet([1.0] * 5, 200), rng.integers(0, 5, 200)
    parts = metrics.brier_decomposition(probs, labels)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within
    assert total == pytest.approx(metrics.brier(probs, labels), abs=1e-12)
    assert parts.reliability > 0.01  # labels that ignore the probabilities
