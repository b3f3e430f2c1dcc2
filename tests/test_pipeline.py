"""The whole path, as a user runs it: one command, then its artifacts through the other commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

from calibrant.artifacts.feedback import read_feedback
from calibrant.artifacts.predictions import read_predictions

ROOT = Path(__file__).resolve().parents[1]


def calibrant(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-m", "calibrant", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if check:
        assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CALIBRANT_DEMO names one that was made already (.ci/run: by `make demo`, just now); it is only read."""
    if made := os.environ.get("CALIBRANT_DEMO"):
        return ROOT / made
    out = tmp_path_factory.mktemp("demo") / "out"
    small = ["--classes", "4", "--images", "60", "--inter", "1.8", "--imbalance", "3", "--epochs", "25"]
    said = calibrant("demo", *small, "--out", out).stdout
    assert said.strip().splitlines()[-1].startswith("Open next: ")
    return out


def test_the_demo_leaves_every_artifact_that_it_names(demo: Path) -> None:
    names = (
        "model.onnx", "report.html", "reliability.png", "calibrator.json", "run/config.json", "run/model.safetensors",
        "run/metrics.jsonl", "predictions/val.parquet", "predictions/test.parquet",
    )  # fmt: skip
    for name in names:
        assert (demo / name).is_file(), name
    assert (demo / "reliability.png").read_bytes().startswith(b"\x89PNG")


def test_the_demo_fills_every_page_of_the_dashboard(demo: Path) -> None:
    """Two losses, heads, a deployed file, and a log in which labels came late and the alarm went off."""
    for run in ("run-ce", "heads/linear", "heads/balanced", "heads/class-means"):
        for name in ("config.json", "calibrator.json", "predictions/test.parquet"):
            assert (demo / run / name).is_file(), f"{run}/{name}"
    (served,) = read_feedback(demo / "served").served
    blurred = np.array([id_.startswith("pictures/blurred-") for id_ in served.ids])
    assert (served.labels >= 0).all()
    assert blurred.sum() == 800
    assert all((demo / "served" / id_).is_file() for id_ in served.ids)
    late = np.searchsorted(served.times, served.arrivals.times[:200])
    assert (late > np.arange(200) + 50).all()
    found = json.loads((demo / "demo.json").read_text())["monitor"]
    assert found["alarms"]["calibration"]["on"]
    assert found["alarms"]["calibration"]["raised_at"] > (~blurred).sum()
    assert found["verdict"]["level"] == "not-trusted"
    *_, error = found["verdict"]["sentence"].split("; ")
    assert error in calibrant("evaluate", demo / "served").stdout  # which knows more causes, and the same error


def test_the_report_stands_alone_and_holds_the_numbers_of_the_evaluation(demo: Path) -> None:
    text = (demo / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    result = json.loads((demo / "demo.json").read_text())
    served = result["evaluations"]["as served over HTTP"]
    assert f"{100 * served['ece']['value']:.2f}" in text
    assert result["served_difference"] < 1e-5


def test_training_learned_something(demo: Path) -> None:
    test = read_predictions(demo / "predictions" / "test.parquet")
    assert float(np.mean(test.logits.argmax(1) == test.labels)) > 0.5  # chance is 0.25


def test_the_temperature_improves_the_likelihood_of_the_data_it_was_fitted_on(demo: Path) -> None:
    """On held-out data it usually does too, but only this is a law."""
    after = json.loads(
        calibrant(
            "evaluate",
            demo / "predictions/val.parquet",
            "--calibrator",
            demo / "calibrator.json",
            "--adjust",
            0,
            "--json",
        ).stdout
    )
    text = json.dumps(after)
    assert "nll" in text
    values = [m["metrics"]["nll"]["value"] for m in _models(after)]
    assert values[-1] <= values[0]


def _models(result: object) -> list[dict[str, dict[str, dict[str, float]]]]:
    """Every evaluation in the JSON, in order."""
    found = []
    if isinstance(result, dict):
        if "metrics" in result and "nll" in result["metrics"]:
            return [result]
        for value in result.values():
            found += _models(value)
    elif isinstance(result, list):
        for value in result:
            found += _models(value)
    return found


def test_the_exported_file_passes_verify_and_inspect_tells_what_is_inside(demo: Path) -> None:
    assert calibrant("verify", demo / "model.onnx", "--run", demo / "run").returncode == 0
    card = json.loads(calibrant("inspect", demo / "model.onnx", "--json").stdout)
    text = json.dumps(card)
    temperature = json.loads((demo / "calibrator.json").read_text())["parameters"]["temperature"]
    assert str(temperature) in text
    assert '"applied": 1.0' in text


def test_a_run_and_its_deployed_file_predict_the_same(demo: Path, tmp_path: Path) -> None:
    calibrant("predict", demo / "model.onnx", "--data", demo / "images", "--out", tmp_path / "onnx.parquet")
    by_torch = read_predictions(demo / "predictions" / "test.parquet")
    by_onnx = read_predictions(tmp_path / "onnx.parquet")
    assert by_onnx.ids == by_torch.ids
    np.testing.assert_array_equal(by_onnx.labels, by_torch.labels)
    np.testing.assert_allclose(by_onnx.logits, by_torch.logits, atol=1e-4)


def test_the_demo_makes_its_own_folder_anew_and_leaves_a_foreign_one_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not delete")
    result = calibrant("demo", "--out", tmp_path / "mine", check=False)
    assert result.returncode == 2
    assert "is not empty and was not made by calibrant demo" in result.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "do not delete"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_during_training_leaves_loadable_files(tmp_path: Path) -> None:
    from calibrant.train.data.digits import DigitSpec, write_digits

    write_digits(tmp_path / "digits", DigitSpec(imbalance=1.0))
    process = subprocess.Popen(
        [sys.executable, "-m", "calibrant", "train", "--data", tmp_path / "digits", "--model", "test_resnet",
         "--epochs", "500", "--out", tmp_path / "run", "--set", "model.image_size=32"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    history = tmp_path / "run" / "metrics.jsonl"
    end = time.monotonic() + 120
    while not (history.is_file() and history.read_text().count("\n") >= 2) and time.monotonic() < end:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in said
    assert "nterrupted" in said
    assert not list((tmp_path / "run").rglob("*.tmp*"))
    out = tmp_path / "after.parquet"
    calibrant("predict", tmp_path / "run", "--data", tmp_path / "digits", "--out", out)
    assert len(read_predictions(out)) > 400
