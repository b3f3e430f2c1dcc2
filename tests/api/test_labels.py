"""Rows that may have several labels, in Python as in the commands."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calibrant
from calibrant.api.labels import LabelsReport
from calibrant.calibration.independent.files import evaluate_labels
from calibrant.errors import CalibrantError, ConfigError, DataError

RNG = np.random.default_rng(0)
TRUE = RNG.normal(size=(600, 3)) * 2
PRESENT = (RNG.random((600, 3)) < 1 / (1 + np.exp(-TRUE))).astype(int)
CLAIMED = 1 / (1 + np.exp(-3 * TRUE))  # three times as sure as it may be


def report(values: Any = CLAIMED, **options: Any) -> LabelsReport:
    found = calibrant.evaluate(values, PRESENT, class_names=["ash", "elm", "<oak>"], **options)
    assert isinstance(found, LabelsReport)
    return found


def test_it_says_what_the_command_says(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", probabilities=CLAIMED, labels=PRESENT)
    (model,) = evaluate_labels([tmp_path / "p.npz"])
    found = calibrant.evaluate(tmp_path / "p.npz")
    assert found.metrics["ece"] == model.evaluation.mean["ece"]
    assert found.to_dict()["labels"] == model.to_dict()["labels"]
    json.dumps(found.to_dict())


def test_one_temperature_for_all_is_the_one_that_made_the_rows() -> None:
    calibrator = calibrant.fit(CLAIMED, PRESENT)
    assert calibrator.parameters["temperature"] == pytest.approx(3, rel=0.15)
    before, after = report(), report(calibrator=calibrator)
    assert before.ece.low > 0.05  # in a calibrated model the measured one would be .05 by chance
    assert after.ece.low < 0.02
    assert list(after.labels) == ["ash", "elm", "<oak>"]
    assert "fitted on, so the numbers flatter it" in after.sentence
    assert "flatter" not in before.sentence


def test_base_rates_of_the_place_of_use_move_each_label() -> None:
    names = {"class_names": ["ash", "elm", "oak"]}
    plain = calibrant.fit(CLAIMED, PRESENT, **names)
    moved = calibrant.fit(CLAIMED, PRESENT, target_prior="ash=0.1,elm=0.5,oak=0.9", **names)
    z = np.log(CLAIMED / (1 - CLAIMED))
    less, same, more = (moved.logits(z) - plain.logits(z)).mean(axis=0)
    assert less < -1.5 < abs(same) + 1.5 < more + 1.5
    assert more > 1.5


def test_a_notebook_shows_every_label_escaped() -> None:
    page = report()._repr_html_()
    assert "&lt;oak&gt;" in page
    assert page.count("<tr>") == 1 + 1 + 3  # heads, means, labels
    assert "LabelsReport of predictions: 0 of 3 labels" in repr(report())
    assert {"ece", "brier", "labels", "sentence"} <= set(dir(report()))
    assert copy.copy(report()).ece == report().ece
    assert not hasattr(report(), "macro_f1")


def test_what_is_for_one_class_a_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="adjust: is for one class a row"):
        calibrant.evaluate(CLAIMED, PRESENT, adjust=1.0)
    with pytest.raises(ConfigError, match="options: is for one class a row"):
        calibrant.fit(CLAIMED, PRESENT, options={"bins": 3})
    with pytest.raises(DataError, match="have a diagram each"):
        calibrant.reliability_diagram(CLAIMED, PRESENT)
    other = calibrant.fit(TRUE, PRESENT.argmax(1))
    with pytest.raises(ConfigError, match="the calibrator: was fitted for one class a row"):
        calibrant.evaluate(CLAIMED, PRESENT, calibrator=other)
    with pytest.raises(CalibrantError, match="the other has one class a row"):
        calibrant.compare(
            calibrant.load_predictions(TRUE, PRESENT.argmax(1)), calibrant.load_predictions(CLAIMED, PRESENT)
        )
