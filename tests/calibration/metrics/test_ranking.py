"""How well confidence sorts right from wrong, by hand and with ties."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import metrics

THREE = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
LABELS = np.array([0, 1, 1])  # right, wrong, right


def test_three_rows_by_hand() -> None:
    # order by confidence: right, right, wrong -> risks 0, 0, 1/3
    assert metrics.aurc(THREE, LABELS) == pytest.approx(1 / 9)
    assert metrics.auroc(THREE, LABELS) == 1.0
    assert metrics.selective_accuracy(THREE, LABELS, coverage=2 / 3) == 1.0
    assert metrics.selective_accuracy(THREE, LABELS, coverage=1.0) == pytest.approx(2 / 3)


def test_equal_scores_count_half_in_auroc() -> None:
    # Right: .9 and .7; wrong: .7. Pairs: .9 > .7 counts 1, .7 = .7 counts 1/2.
    probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3]])
    assert metrics.auroc(probs, [0, 0, 1]) == pytest.approx(0.75)


def test_with_nothing_wrong_there_is_nothing_to_tell_apart() -> None:
    assert np.isnan(metrics.auroc(np.array([[0.7, 0.3]]), [0]))


def test_row_order_changes_nothing_even_with_ties() -> None:
    rng = np.random.default_rng(5)
    probs = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])[rng.integers(0, 3, 400)]
    labels = rng.integers(0, 2, 400)
    mixed = rng.permutation(400)
    for function in (metrics.aurc, metrics.auroc, metrics.ece, metrics.smooth_ece, metrics.selective_accuracy):
        assert function(probs, labels) == pytest.approx(function(probs[mixed], labels[mixed]), abs=1e-12)


def test_seven_of_a_hundred_rows_are_seven() -> None:
    """0.07 * 100 is 7.000000000000001 in floating point, whose ceiling would be eight rows."""
    confidence = np.linspace(0.99, 0.6, 100)
    labels = np.zeros(100, int)
    labels[7:] = 1  # the first seven are right, all others wrong
    probs = np.stack([confidence, 1 - confidence], axis=1)
    assert metrics.selective_accuracy(probs, labels, coverage=0.07) == 1.0
    assert metrics.selective_accuracy(probs, labels, coverage=0.08) == pytest.approx(7 / 8)
