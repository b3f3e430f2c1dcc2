"""A calibrator's map and threshold belong to the expression that they were fitted in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.model_card import Prior
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.calibration.conformal.holding import decisions_hold
from calibrant.export import edit

from ..conftest import CLASSES, PRIOR
from ..test_edit import CALIBRATORS

RATIO = np.log(np.array(PRIOR) * len(CLASSES))
PLAIN = replace(CALIBRATORS["temperature"], abstain={"wanted_risk": 0.1, "threshold": 0.625})
INSIDE = replace(PLAIN, fitted_on={"strength": 1.0, "log_prior_ratio": RATIO.tolist()})


@pytest.fixture
def model(deployed: Path, tmp_path: Path) -> Path:
    path = tmp_path / "edited.onnx"
    path.write_bytes(deployed.read_bytes())
    return path


@pytest.mark.parametrize(
    ("calibrator", "prior", "expected"),
    [
        (PLAIN, Prior(PRIOR), True),
        (PLAIN, Prior(PRIOR, applied=1.0), False),
        (INSIDE, Prior(PRIOR, applied=1.0), True),
        (INSIDE, Prior(PRIOR, applied=0.5), False),
        (INSIDE, Prior(PRIOR), False),
        (INSIDE, Prior(PRIOR, absorbed=1.0, applied=1.0), True),  # total 2, of which the graph makes 1
        (INSIDE, Prior(PRIOR, target=PRIOR, applied=1.0), False),
    ],
)
def test_the_shift_of_the_fit_and_of_the_file_are_compared(
    calibrator: Calibrator, prior: Prior, expected: bool
) -> None:
    assert decisions_hold({"fitted_on": calibrator.fitted_on}, prior) is expected


def test_a_calibrator_fitted_inside_a_correction_wants_that_correction(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit.adjust(model, 1.0)
    card = edit.recalibrate(model, INSIDE)
    assert "not calibrated" not in caplog.text
    assert card.abstain_below == 0.625
    card = edit.adjust(model, 0.0)
    assert "fitted inside a prior correction of strength 1 that this file does not make" in caplog.text
    assert card.abstain_below is None


def test_a_calibrator_fitted_without_a_correction_stays_calibrated_behind_any(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert edit.recalibrate(model, PLAIN).abstain_below == 0.625
    card = edit.adjust(model, 1.0)
    assert "not calibrated" not in caplog.text
    assert "was fitted without a prior adjustment and is left out" in caplog.text
    assert card.abstain_below is None


def test_a_threshold_goes_with_its_calibrator_and_one_set_by_hand_stays(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit.recalibrate(model, PLAIN)
    assert edit.recalibrate(model, CALIBRATORS["vector"]).abstain_below is None
    assert "is taken out" in caplog.text
    edit.set_threshold(model, 0.4)
    assert edit.recalibrate(model, PLAIN).abstain_below == 0.4
    assert edit.adjust(model, 1.0).abstain_below == 0.4
    assert OnnxFile.open(model).card().abstain_below == 0.4
