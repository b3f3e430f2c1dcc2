"""Intervals of telling foreign rows cover the truth."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.intervals.ood import measure_fpr, measure_ood_auroc
from calibrant.calibration.metrics.ood import ood_detection


def test_both_cover_the_truth_of_two_normal_laws() -> None:
    """Known N(1, 1), foreign N(0, 1): AUROC Phi(1 / sqrt 2) = .7602; FPR Phi(-(1 - 1.6449)) = .7405."""
    rng = np.random.default_rng(5)
    held = [0, 0]
    for _ in range(300):
        known, foreign = rng.normal(1, 1, 150), rng.normal(0, 1, 120)
        found = ood_detection(known, foreign)
        area, fpr = measure_ood_auroc(known, foreign, found.auroc), measure_fpr(known, foreign, found)
        assert area.low is not None
        assert area.high is not None
        assert fpr.low is not None
        assert fpr.high is not None
        held[0] += area.low <= 0.7602 <= area.high
        held[1] += fpr.low <= 0.7405 <= fpr.high
        assert fpr.low <= fpr.value <= fpr.high
    assert held[0] >= 0.92 * 300
    assert held[1] >= 0.95 * 300


def test_sides_that_do_not_overlap_still_leave_room() -> None:
    known, foreign = np.arange(100.0) + 1000, np.arange(60.0)
    found = ood_detection(known, foreign)
    assert (found.auroc, found.fpr) == (1.0, 0.0)
    fpr = measure_fpr(known, foreign, found)
    assert fpr.low == 0.0
    assert fpr.high == pytest.approx(5.024 / 65.024, rel=1e-3)  # Wilson of 0 in 60 with z = 2.2414
    assert measure_ood_auroc(known[:10], foreign[:9], 1.0).low < 0.9  # type: ignore[operator]


def test_few_known_rows_say_little_about_the_threshold() -> None:
    """Of ten known rows the true 5 % quantile may lie below all: then every foreign row may be accepted."""
    found = ood_detection(np.arange(10.0), np.arange(-5.0, 5.0))
    fpr = measure_fpr(np.arange(10.0), np.arange(-5.0, 5.0), found)
    assert fpr.high == 1.0
