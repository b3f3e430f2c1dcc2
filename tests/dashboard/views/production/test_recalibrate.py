"""The button that recalibrates with the labels of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.artifacts.onnx_file import OnnxFile

from ...conftest import export_small_network, write_feedback
from ..conftest import Page, frame, words

V1 = Path(__file__).resolve().parents[3] / "golden" / "v1"


def test_a_new_file_is_written_beside_the_old_one(page: Page, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model = export_small_network(tmp_path / "model.onnx")
    write_feedback(tmp_path / "feedback", model, rows=400, every=2, sharpness=6.0)
    old = model.read_bytes()
    drawn = page("production", tmp_path)
    trial = frame(drawn, "Recalibrated").set_index("Number")
    assert trial.loc["NLL", "Recalibrated"] < trial.loc["NLL", "As served"]
    # 100 rows judge it, and an interval of so few is wide.
    assert "Recalibrated, its confidence would be: **cannot be told**." in words(drawn)
    drawn.button(key="recalibrate").click().run()
    assert [e.value for e in drawn.exception] == []
    assert "Written beside the old file" in drawn.success[0].value
    assert model.read_bytes() == old
    (new,) = (p for p in tmp_path.glob("*.onnx") if p != model)
    calibrator = OnnxFile.open(new).card().calibrator
    assert calibrator is not None
    assert calibrator["parameters"]["temperature"] > 4  # twice the file's: the answers were three times too sure


def test_too_few_labels_are_refused_in_words(page: Page) -> None:
    drawn = page("production", V1)
    assert "too few to recalibrate" in words(drawn)
    assert len(drawn.button) == 0
