"""What can be deployed, each once."""

from __future__ import annotations

import shutil
from pathlib import Path

from calibrant.dashboard.folder.index import scan
from calibrant.dashboard.numbers import subjects

from ..conftest import write_model, write_run


def test_a_run_with_each_calibrator_a_run_without_and_a_deployed_file_are_subjects(tmp_path: Path) -> None:
    write_run(tmp_path / "mine", rows=60)
    shutil.copy(tmp_path / "mine/calibrator.json", tmp_path / "mine/calibrator-new.json")
    write_run(tmp_path / "bare", rows=60, seed=3, calibrator=False)
    write_model(tmp_path / "mine" / "model.onnx", source={"checkpoint_sha256": "weights of mine"})
    write_model(tmp_path / "other.onnx", source={"checkpoint_sha256": "weights of nobody"})
    found = {(s.name, s.formula): s for s in subjects.of_index(scan(tmp_path))}
    assert set(found) == {
        ("bare", "network alone"), ("mine", "temperature, calibrator.json"),
        ("mine", "temperature, calibrator-new.json"),
        ("mine/model.onnx", "deployed file"), ("other.onnx", "deployed file"),
    }  # fmt: skip
    assert found["other.onnx", "deployed file"].scored is None
    assert found["mine", "temperature, calibrator.json"].facts["loss"] == "vace"
    assert len({s.key for s in found.values()}) == len(found)


def test_predictions_made_again_of_the_same_weights_are_no_second_subject(tmp_path: Path) -> None:
    write_run(tmp_path / "demo" / "run", rows=60)
    shutil.copytree(tmp_path / "demo/run/predictions", tmp_path / "demo/predictions")
    assert [s.name for s in subjects.of_index(scan(tmp_path))] == ["demo/run"]
    assert [o.name for o in subjects.owners(scan(tmp_path))] == ["demo/run", "demo"]
