"""Intervals of ranking: open where errors are few, and around the value."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.evaluation import ranking
from calibrant.calibration.intervals.ranking import score_interval
from calibrant.calibration.statistics.accumulate import statistics_of_probabilities


def of(confidence: list[float], right: list[bool]) -> dict[str, tuple[float, float, float]]:
    p = np.stack([confidence, 1 - np.array(confidence)], axis=1)
    found = ranking(statistics_of_probabilities(p, np.where(right, 0, 1)))
    return {name: (m.value, m.low or 0.0, m.high or 0.0) for name, m in found.items()}


def test_a_score_interval_ends_where_the_value_is_196_deviations_away() -> None:
    low, high = score_interval(0.8, 20, 5)
    for area in (low, high):
        q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)  # Hanley and McNeil 1982, with (m + n) / 2 for both sizes
        variance = (area * (1 - area) + 11.5 * (q1 - area**2) + 11.5 * (q2 - area**2)) / 100
        assert abs(area - 0.8) == pytest.approx(1.96 * np.sqrt(variance), abs=2e-3)


def test_three_errors_that_are_all_ranked_last_prove_no_perfect_ranking() -> None:
    value, low, high = of([0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.58, 0.55], [True] * 5 + [False] * 3)["auroc"]
    assert (value, high) == (1.0, 1.0)
    assert low < 0.8
