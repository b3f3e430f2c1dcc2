"""Accuracy in its kinds, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import metrics

THREE = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
LABELS = np.array([0, 1, 1])  # right, wrong, right


def test_three_rows_by_hand() -> None:
    assert metrics.accuracy(THREE, LABELS) == pytest.approx(2 / 3)
    assert metrics.balanced_accuracy(THREE, LABELS) == pytest.approx((1 + 0.5) / 2)
    # class 0: TP 1, FP 1, FN 0 -> 2/3; class 1: TP 1, FP 0, FN 1 -> 2/3
    assert metrics.macro_f1(THREE, LABELS) == pytest.approx(2 / 3)


def test_classes_that_do_not_occur_are_left_out_of_means() -> None:
    probs = np.array([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0], [0.3, 0.7, 0.0]])
    assert metrics.balanced_accuracy(probs, LABELS) == pytest.approx((1 + 0.5) / 2)
    assert metrics.macro_f1(probs, LABELS) == pytest.approx(2 / 3)


def test_top_k_counts_the_lower_class_first_among_equals() -> None:
    probs = np.array([[0.4, 0.3, 0.3]] * 2)
    assert metrics.top_k_accuracy(probs, [1, 2], k=2) == 0.5


def test_a_class_that_is_only_predicted_counts_in_f1_and_not_in_recall() -> None:
    probs, labels = np.array([[0.9, 0.0, 0.1], [0.1, 0.0, 0.9]]), np.array([0, 0])
    assert metrics.macro_f1(probs, labels) == pytest.approx((2 / 3 + 0) / 2)
    assert metrics.balanced_accuracy(probs, labels) == 0.5


def test_a_class_between_others_without_rows_counts_for_nothing() -> None:
    probs = np.array([[0.8, 0.1, 0.1], [0.1, 0.1, 0.8], [0.7, 0.2, 0.1]])
    labels = np.array([0, 2, 2])  # right, right, wrong; class 1 is neither labelled nor predicted
    assert metrics.balanced_accuracy(probs, labels) == pytest.approx((1 + 0.5) / 2)
    # classes 0 and 2 both: TP 1, one mistake -> 2/3
    assert metrics.macro_f1(probs, labels) == pytest.approx(2 / 3)
