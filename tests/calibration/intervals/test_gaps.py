"""Bins as an experiment, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.intervals.gaps import GapSample, contribution, gap_error
from calibrant.calibration.statistics.bins import equal_width

SHARE, GAP = np.array([0.25, 0.75]), np.array([-0.2, 0.4])


def test_the_error_that_gaps_come_to_under_each_norm() -> None:
    found = {norm: float(gap_error(SHARE, GAP, norm)) for norm in ("sum", "over", "under", "rms", "max")}  # type: ignore[arg-type]
    assert found == pytest.approx({"sum": 0.35, "over": 0.3, "under": 0.05, "rms": np.sqrt(0.01 + 0.12), "max": 0.4})
    for norm in ("sum", "over", "under"):
        assert float(contribution(GAP, norm) @ SHARE) == pytest.approx(found[norm])  # type: ignore[arg-type]


def test_labels_of_spread_confidences_vary_less_than_a_coin_of_their_mean() -> None:
    """n draws of Bernoulli(c_i) have the variance mean c (1 - c) / n = (m (1 - m) - var c) / n."""
    c = np.array([0.7, 0.9])
    bins = equal_width(c, np.array([True, True]), 1)
    sample = GapSample.of(bins, None, np.array([c.var()]))
    assert sample.noise_variance(np.zeros(1)) == pytest.approx((0.7 * 0.3 + 0.9 * 0.1) / 2 / 2)
    # With a true gap the accuracy is 0.8 - 0.3.
    assert sample.noise_variance(np.array([0.3])) == pytest.approx((0.25 - 0.01) / 2)


def test_weighted_rows_count_as_their_effective_number() -> None:
    c, weights = np.array([0.8, 0.8, 0.8]), np.array([1.0, 1.0, 2.0])
    bins = equal_width(c, np.array([True, True, False]), 2, weights)
    assert GapSample.of(bins, np.array([0.0, 6.0])).rows == pytest.approx([16 / 6])
    assert len(GapSample.of(bins).share) == 1  # the empty bin is left out
