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


def test_weighted_rows_count_as_their_effective_number() -> None:
    c, weights = np.array([0.8, 0.8, 0.8]), np.array([1.0, 1.0, 2.0])
    bins = equal_width(c, np.array([True, True, False]), 2, weights)
    assert GapSample.of(bins, np.array([0.0, 6.0])).rows == pytest.approx([16 / 6])
    assert len(GapSample.of(bins).share) == 1  # the empty bin is left out
    assert GapSample.of(bins, np.array([0.0, 6.0])).widening == pytest.approx(np.sqrt(1 + 8 * (6 / 16 - 1 / 3)))
    assert GapSample.of(equal_width(c, c > 0.5, 2)).widening == 1.0


def test_the_largest_error_is_that_of_bins_that_are_all_wrong_or_all_right() -> None:
    c = np.array([0.3, 0.3, 0.8, 0.8])
    sample = GapSample.of(equal_width(c, np.array([True, False, True, False]), 2))
    assert sample.most("over") == pytest.approx(0.5 * 0.3 + 0.5 * 0.8)
    assert sample.most("under") == pytest.approx(0.5 * 0.7 + 0.5 * 0.2)
    assert sample.most("sum") == pytest.approx(0.5 * 0.7 + 0.5 * 0.8)
