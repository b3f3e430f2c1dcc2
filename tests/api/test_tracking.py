"""The ECE with its interval goes into the books of other libraries, each the real one where it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import calibrant
from calibrant.api.tracking import epoch_metrics
from calibrant.calibration import evaluate
from calibrant.calibration.softmax import softmax
from calibrant.errors import CalibrantError, ConfigError, MissingExtra

Z = np.random.default_rng(0).normal(size=(90, 3)) * 2
Y = np.random.default_rng(1).integers(0, 3, 90)


def test_the_numbers_of_an_epoch_are_those_of_evaluate() -> None:
    found, expected = epoch_metrics(Z, Y), evaluate(softmax(Z), Y)
    assert found["ece"] == pytest.approx(expected.ece.value, abs=1e-9)
    assert found["ece_low"] == pytest.approx(expected.ece.low, abs=1e-3)
    assert found["ece_high"] == pytest.approx(expected.ece.high, abs=1e-3)
    assert found["accuracy"] == expected.accuracy.value
    assert found["nll"] == pytest.approx(expected.nll.value)


def test_books_that_nobody_keeps_are_named() -> None:
    report = calibrant.evaluate(Z, Y)
    with pytest.raises(ConfigError, match="does not know 'paper'"):
        calibrant.log_report(report, "paper", figure=False)
    for library, name in (("mlflow", "mlflow"), ("wandb", "wandb")):
        try:
            __import__(library)
        except ModuleNotFoundError:
            with pytest.raises(MissingExtra, match=rf"needs {name}.*calibrant\[tracking\]"):
                calibrant.log_report(report, name, figure=False)


def test_callbacks_are_listed_and_say_what_they_need() -> None:
    assert {"LightningCallback", "TrainerCallback"} <= set(dir(calibrant))
    for name in ("LightningCallback", "TrainerCallback"):
        try:
            callback = getattr(calibrant, name)
        except MissingExtra as error:
            assert "pip install" in str(error)  # noqa: PT017
            continue
        with pytest.raises(CalibrantError, match="needs class_names and preprocessing"):
            callback("runs/mine")


def test_weights_and_biases_gets_every_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    report = calibrant.evaluate(Z, Y)
    run = wandb.init(project="test", dir=str(tmp_path))
    calibrant.log_report(report, run)
    assert run.summary["ece"] == pytest.approx(report.ece.value)
    assert run.summary["verdict"] == report.verdict.sentence
    run.finish()


@pytest.mark.filterwarnings("ignore")
def test_mlflow_gets_every_metric_the_verdict_and_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # version 3 asks for a word before it writes plain files
    mlflow.set_tracking_uri(f"file://{tmp_path / 'mlruns'}")
    report = calibrant.evaluate(Z, Y)
    with mlflow.start_run() as run:
        calibrant.log_report(report, "mlflow", step=3, prefix="test_")
    kept = mlflow.tracking.MlflowClient().get_run(run.info.run_id)
    for name, value in (("ece", report.ece.value), ("ece_low", report.ece.low), ("ece_high", report.ece.high)):
        assert kept.data.metrics[f"test_{name}"] == pytest.approx(value)
    assert kept.data.tags["test_verdict"] == report.verdict.sentence
    files = {
        Path(f.path).name for f in mlflow.tracking.MlflowClient().list_artifacts(run.info.run_id, "calibrant/test_")
    }
    assert files == {"report.json", "reliability.png"}
