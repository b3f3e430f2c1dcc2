"""Which correction a deployed file gets: what is asked for, else what its calibrator holds."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.calibration import Calibrator
from calibrant.export.graph.own_prior import deployed_prior, same_shift

NAMES = ("ash", "birch")
TRAIN = (0.8, 0.2)
PLAIN = Calibrator("temperature", 2, {"temperature": 2.0})
HOLDING = Calibrator("temperature", 2, {"temperature": 2.0}, prior=Prior(TRAIN, None, 0.0, 1.0))


def test_without_a_word_nothing_is_corrected() -> None:
    assert deployed_prior(NAMES, PLAIN, TRAIN, None, None, 0.5, None) == Prior(TRAIN, None, 0.5, 0.0)


def test_what_is_asked_for_is_a_total_and_the_file_applies_the_rest() -> None:
    assert deployed_prior(NAMES, PLAIN, TRAIN, None, 1.0, 0.25, None) == Prior(TRAIN, None, 0.25, 0.75)


def test_the_calibrators_own_correction_is_taken_over() -> None:
    assert deployed_prior(NAMES, HOLDING, TRAIN, None, None, 0.0, None).applied == 1.0


def test_another_target_replaces_the_calibrators_but_not_its_strength() -> None:
    found = deployed_prior(NAMES, HOLDING, TRAIN, (3, 1), None, 0.0, None)
    assert found.target == (0.75, 0.25)
    assert found.applied == 1.0


def test_a_strength_that_is_asked_for_wins_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert deployed_prior(NAMES, HOLDING, TRAIN, None, 0.5, 0.0, None).applied == 0.5
    assert "--adjust 0.5 takes the place of the correction of total strength 1" in caplog.text
    caplog.clear()
    deployed_prior(NAMES, HOLDING, TRAIN, None, 1.0, 0.0, None)
    assert caplog.text == ""


def test_a_floor_smooths_the_training_prior() -> None:
    found = deployed_prior(NAMES, None, (1, 0), None, 1.0, 0.0, 0.25)
    np.testing.assert_allclose(found.train, (0.8, 0.2))


def test_shifts_that_differ_by_a_constant_are_the_same() -> None:
    strong = Prior(TRAIN, None, 0.0, 1.0)
    assert same_shift(strong, Prior(TRAIN, (0.5, 0.5), 0.0, 1.0))
    assert not same_shift(strong, Prior(TRAIN, None, 0.0, 0.9))
    assert same_shift(Prior(TRAIN, None, 0.0, 0.0), Prior(None, None, 0.0, 0.0))
    assert not same_shift(strong, Prior(TRAIN, None, 0.0, 0.0))
