"""What is refused before anything is measured, and what the smallest inputs mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibrant.calibration import metrics
from calibrant.errors import DataError


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        (np.array([[2.0, -1.0]]), [0], "logits"),
        (np.array([[3.0, 1.0]]), [0], "do not sum to one"),
        (np.array([[0.5, 0.45]]), [0], "do not sum to one"),
        (np.array([[np.nan, 0.5]]), [0], "NaN"),
        (np.array([[0.5, 0.5]]), [2], "labels contain 2"),
        (np.array([[0.5, 0.5]]), [-1], "labels contain -1"),
        (np.array([[0.5, 0.5]]), [0.5], "whole numbers"),
        (np.array([0.5, 0.5]), [0, 1], "shape"),
        (np.zeros((0, 2)), [], "no rows"),
    ],
)
def test_what_cannot_be_measured_is_refused(probs: np.ndarray, labels: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        metrics.ece(probs, labels)


def test_weights_that_weigh_nothing_are_refused() -> None:
    probs, labels = np.array([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]), np.array([0, 1, 1])
    with pytest.raises(DataError, match="weights"):
        metrics.ece(probs, labels, weights=[1, -1, 1])
    with pytest.raises(DataError, match="weights"):
        metrics.ece(probs, labels, weights=[0, 0, 0])


def test_one_row_and_one_class_are_defined() -> None:
    assert metrics.ece(np.array([[0.7, 0.3]]), [0]) == pytest.approx(0.3)
    assert metrics.debiased_ece(np.array([[0.7, 0.3]]), [0]) == pytest.approx(0.3)
    one = np.ones((4, 1))
    zero = np.zeros(4, int)
    assert (metrics.accuracy(one, zero), metrics.ece(one, zero), metrics.nll(one, zero)) == (1.0, 0.0, 0.0)


def test_a_weight_of_two_is_a_row_given_twice() -> None:
    rng = np.random.default_rng(3)
    probs = rng.dirichlet([0.5] * 4, 60)
    labels = rng.integers(0, 4, 60)
    weights = rng.integers(0, 4, 60).astype(float)
    twice = np.repeat(np.arange(60), weights.astype(int))
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "nll", "brier", "ece", "classwise_ece", "mce",
                 "rms_calibration_error", "unweighted_ece", "smooth_ece", "auroc", "aurc"):  # fmt: skip
        function = getattr(metrics, name)
        kept = weights > 0  # rows of weight 0 may still occupy an otherwise empty bin
        weighted = function(probs[kept], labels[kept], weights=weights[kept])
        # Within a repeated row risk is averaged over its copies, so AURC alone differs, by the order of 1/N.
        assert weighted == pytest.approx(function(probs[twice], labels[twice]), abs=0.02 if name == "aurc" else 1e-12)
