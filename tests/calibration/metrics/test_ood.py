"""Telling foreign rows from known ones, by hand."""

from __future__ import annotations

import pytest

from calibrant.calibration import metrics
from calibrant.errors import DataError


def test_five_known_and_four_foreign_by_hand() -> None:
    # Of the known 1 2 3 4 5 four are accepted from 2 on; of the foreign 0 1 2 3 two.
    found = metrics.ood_detection([1, 2, 3, 4, 5], [0, 1, 2, 3], tpr=0.8)
    assert (found.threshold, found.fpr) == (2.0, 0.5)
    # Pairs won: 1 beats 0 and half of 1; 2 beats 0, 1 and half of 2; 3 beats three and half of 3; 4 and 5 beat all.
    assert found.auroc == pytest.approx((1.5 + 2.5 + 3.5 + 4 + 4) / 20)


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        metrics.ood_detection([1.0, float("nan")], [0.0])
    with pytest.raises(DataError, match="shapes"):
        metrics.ood_detection([], [0.0])
