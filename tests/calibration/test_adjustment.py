"""The one formula: order of its parts, Bayes' rule, and priors that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.calibration import fit
from calibrant.calibration.adjustment import adjusted_logits, adjusted_probabilities
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, ConfigError
from calibrant.shares import log_prior_ratio

Z = np.random.default_rng(0).normal(size=(7, 3)) * 2


def test_formula_term_by_term() -> None:
    tau, t, train, target, a = np.array([1.0, 2.0, 0.5]), 1.7, [0.7, 0.2, 0.1], [0.2, 0.3, 0.5], 0.8
    ratio = log_prior_ratio(train, target)
    expected = Z / (tau * t) - a * np.log(np.array(train) / np.array(target))
    found = adjusted_logits(Z, class_temperatures=tau, temperature=t, log_prior_ratio=ratio, strength=a)
    assert np.allclose(found, expected, atol=1e-14)


def test_strength_one_is_bayes_rule() -> None:
    train, target = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.3, 0.5])
    p = softmax(Z)
    by_hand = p * target / train
    by_hand /= by_hand.sum(axis=1, keepdims=True)
    found = adjusted_probabilities(Z, log_prior_ratio=log_prior_ratio(train, target), strength=1.0)
    assert np.allclose(found, by_hand, atol=1e-14)


def test_adjusting_there_and_back_changes_nothing() -> None:
    a, b = [5, 3, 2], [1, 1, 8]
    there = adjusted_logits(Z, log_prior_ratio=log_prior_ratio(a, b), strength=1.0)
    back = adjusted_logits(there, log_prior_ratio=log_prior_ratio(b, a), strength=1.0)
    assert np.allclose(back, Z, atol=1e-12)


def test_strength_zero_is_off_and_uniform_is_the_default_target() -> None:
    assert np.array_equal(adjusted_logits(Z), Z)
    assert np.allclose(log_prior_ratio([2, 1, 1]), np.log(np.array([0.5, 0.25, 0.25]) * 3))


def test_calibrator_takes_the_place_of_the_temperature() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2, 0])
    calibrator = fit("temperature", Z, labels)
    t = calibrator.parameters["temperature"]
    assert np.allclose(adjusted_logits(Z, calibrator=calibrator), Z / t)
    ratio = log_prior_ratio([5, 3, 2])
    assert np.allclose(
        calibrator.probabilities(Z, log_prior_ratio=ratio, strength=0.5),
        adjusted_probabilities(Z, temperature=t, log_prior_ratio=ratio, strength=0.5),
    )
    with pytest.raises(ConfigError, match="one of them"):
        adjusted_logits(Z, calibrator=calibrator, temperature=2.0)


@pytest.mark.parametrize("bad", [[1.0, 2.0], [np.nan, 1, 1], [[1, 1, 1]]])
def test_ratios_of_the_wrong_shape_are_refused(bad: list[float]) -> None:
    with pytest.raises(CalibrantError):
        adjusted_logits(Z, log_prior_ratio=bad, strength=1.0)


def test_strength_without_a_prior_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a prior"):
        adjusted_logits(Z, strength=1.0)
