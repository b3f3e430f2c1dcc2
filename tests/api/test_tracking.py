"""The ECE with its interval goes into the books of other libraries, each the real one where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


HALF = (0.5, 0.5, 0.5)
PREPARED = {"input_size": (3, 16, 16), "mean": HALF, "std": HALF, "interpolation": "bilinear", "crop_pct": 1.0}


def test_preprocessing_that_says_too_little_is_told_before_the_training() -> None:
    from calibrant.api.tracking import _Collected

    short = {k: v for k, v in PREPARED.items() if k != "interpolation"}
    with pytest.raises(ConfigError, match="preprocessing: says no interpolation"):
        _Collected("runs/mine", ["grey", "red"], short)


def tiny_rows() -> tuple[Any, Any]:
    """Pictures [N, 3, 16, 16] of two colours."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(64) % 2
    x = (
        torch.rand(64, 3, 16, 16, generator=generator)
        + y[:, None, None, None] * torch.tensor([0.5, 0, 0])[:, None, None]
    )
    return x, y


@pytest.mark.slow  # 20 s: Lightning's own imports
@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_the_interval_and_its_run_is_exported(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    torch = pytest.importorskip("torch")
    timm = pytest.importorskip("timm")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = timm.create_model("test_resnet", num_classes=2)

        def training_step(self, batch: Any, index: int) -> Any:
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch: Any, index: int) -> Any:
            return {"logits": self.model(batch[0]), "labels": batch[1]}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.05)

    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tiny_rows()), 16)
    callback = calibrant.LightningCallback(tmp_path / "run", class_names=["grey", "red"], preprocessing=PREPARED)
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, default_root_dir=tmp_path,
    )  # fmt: skip
    module = Module()
    trainer.fit(module, rows, rows)
    logged = trainer.callback_metrics
    x, y = tiny_rows()
    with torch.no_grad():
        z = module.eval().model(x).numpy()
    expected = calibrant.evaluate(z, y)
    assert float(logged["val_ece"]) == pytest.approx(expected.ece.value, abs=1e-5)
    assert float(logged["val_ece_low"]) == pytest.approx(expected.ece.low, abs=1e-3)
    assert callback.run.evaluate("val").accuracy.value == expected.accuracy.value
    deployed = callback.run.export(tmp_path / "m.onnx", calibrator=callback.run.fit(), verify=False)
    assert deployed.card.classes == ("grey", "red")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_hugging_face_logs_the_interval_and_writes_its_run(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    x, y = tiny_rows()
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8,
        num_labels=2,
    )  # fmt: skip
    callback = calibrant.TrainerCallback(tmp_path / "run", class_names=["grey", "red"], preprocessing=PREPARED)
    rows = [{"pixel_values": a, "labels": b} for a, b in zip(x, y, strict=True)]
    trainer = transformers.Trainer(
        transformers.ViTForImageClassification(config),
        transformers.TrainingArguments(
            str(tmp_path / "out"), num_train_epochs=1, eval_strategy="epoch", report_to=[], use_cpu=True,
            save_strategy="no", disable_tqdm=True,
        ),
        train_dataset=rows, eval_dataset=rows, compute_metrics=callback.compute_metrics, callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    last = next(line for line in reversed(trainer.state.log_history) if "eval_ece" in line)
    with torch.no_grad():
        z = trainer.model.eval()(x).logits.numpy()
    expected = calibrant.evaluate(z, y)
    assert last["eval_ece"] == pytest.approx(expected.ece.value, abs=1e-5)
    assert last["eval_ece_high"] == pytest.approx(expected.ece.high, abs=1e-3)
    assert callback.run.evaluate("val").accuracy.value == expected.accuracy.value
