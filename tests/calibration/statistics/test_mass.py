"""Equal-mass bins from statistics, against a sort of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.diagrams.reliability import equal_mass_diagram
from calibrant.calibration.statistics.accumulate import Accumulator, statistics_of_probabilities
from calibrant.calibration.statistics.mass import mass_bins

from ..diagrams.test_smooth_curve import rows


@pytest.mark.parametrize("bins", [1, 7, 15, 100])
def test_each_bin_is_a_part_of_the_sorted_rows(bins: int) -> None:
    probs, labels = rows(3001)
    confidence, right = probs.max(axis=1), probs.argmax(axis=1) == labels
    order = np.argsort(confidence, kind="stable")
    parts = np.array_split(order, bins)
    diagram = equal_mass_diagram(statistics_of_probabilities(probs, labels), bins)
    np.testing.assert_array_equal(diagram.rows, [len(p) for p in parts])
    np.testing.assert_allclose(diagram.confidence, [confidence[p].mean() for p in parts], atol=1e-12)
    np.testing.assert_allclose(diagram.accuracy, [right[p].mean() for p in parts], atol=1e-12)


def test_through_cells_a_bin_is_nearly_that_part() -> None:
    probs, labels = rows(50_000)
    accumulator = Accumulator(4, rows_expected=10**9)
    accumulator.add_probabilities(probs, labels)
    cut = mass_bins(accumulator.finish(), 15)
    exact = mass_bins(statistics_of_probabilities(probs, labels), 15)
    assert abs(cut.rows - exact.rows).max() <= 1
    np.testing.assert_allclose(cut.confidence, exact.confidence, atol=2e-4)
    np.testing.assert_allclose(cut.accuracy, exact.accuracy, atol=2e-3)
    assert float(cut.total_gap.sum()) == pytest.approx(float(exact.total_gap.sum()), abs=1e-9)


def test_under_a_target_prior_every_bin_weighs_the_same() -> None:
    probs, labels = rows(4000, classes=3)
    statistics = statistics_of_probabilities(probs, labels).weighted(np.array([5.0, 1.0, 0.5]))
    weight = mass_bins(statistics, 10).weight
    np.testing.assert_allclose(weight, weight.mean(), rtol=0.02)
