"""The golden rows of exported and edited files are what the one formula says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts import golden_rows
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.calibration import Calibrator
from calibrant.calibration.softmax import softmax
from calibrant.export import edit
from calibrant.export.checks import golden
from calibrant.export.checks.parity import session


@pytest.fixture
def model(deployed: Path, tmp_path: Path) -> Path:
    path = tmp_path / "edited.onnx"
    path.write_bytes(deployed.read_bytes())
    return path


def test_an_exported_file_holds_what_its_logits_say(deployed: Path) -> None:
    card = OnnxFile.open(deployed).card()
    assert card.golden is not None
    logits = session(deployed).run(["logits"], {"images": golden_rows.questions(card)})[0].astype(np.float64)
    wanted = np.take_along_axis(softmax(logits), np.asarray(card.golden["classes"]), axis=1)
    np.testing.assert_allclose(card.golden["probabilities"], wanted, atol=1e-6)
    assert (np.argmax(logits, axis=1) == np.asarray(card.golden["classes"])[:, 0]).all()


def test_an_edit_that_moves_the_answers_moves_the_golden_rows(deployed: Path, model: Path) -> None:
    before = OnnxFile.open(deployed).card()
    card = edit.recalibrate(model, Calibrator("temperature", len(before.classes), {"temperature": 2.0}))
    logits = session(deployed).run(["logits"], {"images": golden_rows.questions(card)})[0].astype(np.float64)
    assert card.golden is not None
    wanted = np.take_along_axis(softmax(logits / 2.0), np.asarray(card.golden["classes"]), axis=1)
    np.testing.assert_allclose(card.golden["probabilities"], wanted, atol=1e-6)
    assert OnnxFile.open(model).card().golden == card.golden
    kept = edit.relabel(model, [f"c{n}" for n in range(len(before.classes))])
    assert kept.golden == card.golden


def test_a_file_too_large_to_run_loses_them_and_says_so(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(golden, "LARGEST", 0)
    assert edit.recalibrate(model, None).golden is None
    assert "holds no golden rows any more" in caplog.text
