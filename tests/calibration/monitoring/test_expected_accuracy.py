from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from calibrant.artifacts.model_card import ModelCard
from calibrant.calibration.monitoring.expected_accuracy import expected_accuracy, held_out_gap
from calibrant.images.preprocessing import Preprocessing


def test_expected_accuracy_by_hand() -> None:
    """c = (0.5, 0.9): mean 0.7, variance (0.25 + 0.09) / 4."""
    got = expected_accuracy(np.array([0.5, 0.9]))
    half = 1.959964 * math.sqrt(0.34 / 4)
    assert got.value == pytest.approx(0.7)
    assert got.low == pytest.approx(0.7 - half)
    assert got.high == 1.0
    assert expected_accuracy(np.full(10_000, 0.8), gap=-0.05).value == pytest.approx(0.75)
    # What is known of the gap is not known exactly: its variance is added.
    unsure = expected_accuracy(np.full(100, 0.5), gap_variance=0.01)
    assert unsure.high - unsure.value == pytest.approx(1.959964 * math.sqrt(0.25 / 100 + 0.01))


def test_the_held_out_gap_of_a_card_by_hand() -> None:
    """under 0.01 - over 0.04 = -0.03; variance of an accuracy of 0.8 over 400 rows: 0.16 / 400."""
    after = {"accuracy": {"value": 0.8}, "under_ece": {"value": 0.01}, "over_ece": {"value": 0.04}}
    card = ModelCard(
        ("a", "b"), Preprocessing((8, 8), 8), metrics={"after": after, "before": {}},
        calibrator={"method": "temperature", "fitted_on": {"rows": 400}},
    )  # fmt: skip
    assert held_out_gap(card) == (pytest.approx(-0.03), pytest.approx(0.0004))
    assert held_out_gap(replace(card, metrics={})) == (0.0, 0.0)
    assert held_out_gap(None) == (0.0, 0.0)


def test_the_interval_of_the_label_free_accuracy_covers_the_truth() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(600):
        confidence = rng.uniform(0.4, 1.0, 300)
        correct = rng.random(300) < confidence
        got = expected_accuracy(confidence)
        inside += got.low <= correct.mean() <= got.high
    assert 0.93 <= inside / 600 <= 0.97
