"""What is said of a calibrator: its one number with what it is worth, and what it promises."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from calibrant.calibration import Calibrator, fit
from calibrant.calibration.metrics.table import METRICS
from calibrant.calibration.report.fit_account import fit_account


@pytest.fixture(scope="module")
def fitted() -> Calibrator:
    """Logits twice as sharp as the labels drawn from them: T is near 2."""
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, (800, 3))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    before = {m.key: {"value": 0.5, "low": 0.4, "high": 0.6} for m in METRICS if m.stored}
    after = before | {"nll": {"value": 0.375, "low": 0.25, "high": 0.5, "null": 0.3125}}
    return replace(fit("temperature", 2 * z, labels), metrics={"before": before, "after": after})


def test_a_temperature_comes_with_its_95_percent_interval(fitted: Calibrator) -> None:
    told = replace(fitted, parameters={"temperature": 1.9876}, fit={"standard_error": 0.1})
    assert fit_account(told).startswith("T = 1.9876 +- 0.196 from 800 rows.")


def test_before_and_after_stand_side_by_side(fitted: Calibrator) -> None:
    line = next(line for line in fit_account(fitted).splitlines() if line.startswith("NLL"))
    assert re.split(r"  +", line)[1:] == ["0.5000", "0.4000 .. 0.6000", "0.3750", "0.2500 .. 0.5000", "0.3125"]


def test_sets_and_answers_are_told_in_percent(fitted: Calibrator) -> None:
    told = replace(
        fitted,
        conformal={"0.1": {"kind": "aps", "threshold": 0.25, "effective_rows": 1234.4}},
        abstain={"threshold": 0.5, "coverage": 0.8, "risk": 0.02, "risk_high": 0.031},
    )
    text = fit_account(told)
    assert "Prediction sets (aps) for 90 %: threshold 0.25, worth 1,234 rows of the target prior" in text
    assert (
        "Answer from confidence 0.5000: 80.0 % of rows, error rate 2.00 % here; true error rate at most 3.10 %" in text
    )


def test_a_note_of_the_fit_is_passed_on(fitted: Calibrator) -> None:
    assert "\nNote: few rows" in fit_account(replace(fitted, fit={"note": "few rows"}))
