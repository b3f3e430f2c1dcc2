"""Rounded probabilities cannot be calibrated as if they were exact, and that is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.kinds import Rounded
from calibrant.calibration.doubts import sharpening_note, temperature_range
from calibrant.calibration.fitting import fit_file
from calibrant.calibration.softmax import softmax

TRUE_T = 2.5
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(4000, 8)) * 6
Y = (softmax(Z / TRUE_T).cumsum(axis=1) < RNG.random((4000, 1))).sum(axis=1)


def test_the_range_holds_the_temperature_that_rounding_hides(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", probabilities=softmax(Z).round(3), labels=Y)
    note = fit_file(tmp_path / "p.npz").fit["note"]
    assert "of the probabilities were written as 0" in note
    low, high = map(float, note.split(":")[0].removeprefix("T ").split("-"))
    assert low < TRUE_T < high
    assert high - low > 0.5


def test_exact_probabilities_leave_no_doubt(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", probabilities=softmax(Z), labels=Y)
    found = fit_file(tmp_path / "p.npz")
    assert found.fit.get("note") is None
    assert found.parameters["temperature"] == pytest.approx(TRUE_T, abs=0.15)


def test_where_nothing_is_zero_both_ends_are_one() -> None:
    z = np.log(softmax(Z))
    low, high = temperature_range(z, Y, Rounded(1e-30, 0.0))
    assert low == high


def test_a_very_low_temperature_of_an_unsure_model_is_suspicious() -> None:
    assert sharpening_note(0.24, 0.2, 0.9) is not None
    for temperature, confidence in ((0.24, 0.95), (0.5, 0.2), (None, 0.2)):
        assert sharpening_note(temperature, confidence, 0.9) is None
