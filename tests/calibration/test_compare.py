"""What the difference of two models' ECE says about rows that were not seen."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration.compare import compare


def test_models_that_disagree_about_a_row_have_half_a_row_more_each_way() -> None:
    """Ten rows of class 2, none of them found: the terms are the confidences, whose differences are 0 and .1.

    The second model's guess of one row is moved to another wrong class of the same confidence: nothing that was seen
    changes, but one of them may have been right. The variance of the mean grows from .01 * .25 / 9 by 1 / 100.
    """
    first = np.tile([0.5, 0.3, 0.2], (10, 1))
    second = np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1]] * 5)
    other = second.copy()
    other[0] = [0.3, 0.5, 0.2]
    labels = np.full(10, 2)
    alike, apart = (compare(first, p, labels)["ece"] for p in (second, other))
    assert alike.difference == apart.difference == pytest.approx(0.05)
    assert alike.low is not None
    assert alike.high is not None
    assert apart.low is not None
    assert apart.high is not None
    # Widths stand to each other as standard deviations, whatever the quantile.
    before, after = 0.01 * 0.25 / 9, 0.01 * 0.25 / 9 + 1 / 100
    assert (apart.high - apart.low) / (alike.high - alike.low) == pytest.approx(np.sqrt(after / before), rel=1e-9)


def test_a_calibrator_that_changes_no_guess_is_judged_by_its_confidences_alone() -> None:
    rng = np.random.default_rng(4)
    z = rng.normal(size=(200, 5))
    labels = z.argmin(axis=1)  # all are wrong, so that no bin is under-confident
    first, second = (np.exp(t * z) / np.exp(t * z).sum(axis=1, keepdims=True) for t in (3.0, 0.1))
    found = compare(first, second, labels)["ece"]
    assert found.low is not None
    assert found.high is not None
    terms = second.max(axis=1) - first.max(axis=1)
    narrow = 2 * 1.972 * terms.std(ddof=1) / np.sqrt(200)  # Student's quantile at 199 degrees of freedom
    assert found.high - found.low == pytest.approx(narrow, rel=0.01)
