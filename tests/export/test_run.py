"""Runs, the command line and verification on demand."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image

from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.artifacts.predictions import Predictions
from calibrant.atomic import write_json, write_text
from calibrant.calibration import Calibrator, fit
from calibrant.calibration.softmax import softmax
from calibrant.commands.root import cli
from calibrant.errors import CalibrantError, CheckFailed, ConfigError, DataError, FormatError
from calibrant.export import ExportConfig, edit, export_run
from calibrant.export.checks.parity import session
from calibrant.export.graph.assemble import build_tail, raw_head, write_deployed
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import ModelConfig, TrainConfig, train_config
from calibrant.train.data.split import Splits
from calibrant.train.engine import fit as train_run
from calibrant.train.losses import create_loss
from calibrant.train.model.feature_model import build_model
from calibrant.train.run.folder import load_run, save_model
from calibrant.train.run.run_record import model_block

NAMES = ("ash", "birch", "cedar")
TAUS = [0.8, 1.0, 1.3]
PRIOR = [0.6, 0.3, 0.1]
PREPROCESSING = Preprocessing((32, 32), 32)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it, of an untrained network, with a folder of images."""
    folder = tmp_path_factory.mktemp("runs") / "trees"
    images = folder.parent / "images"
    rng = np.random.default_rng(0)
    for name in NAMES:
        (images / name).mkdir(parents=True)
        for i in range(8):
            noise = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(noise // 2 + rng.integers(0, 128, dtype=np.uint8)).save(images / name / f"{i}.png")
    torch.manual_seed(0)
    network = build_model("test_resnet", len(NAMES), input_size=(32, 32))
    config = TrainConfig(model=ModelConfig(name="test_resnet"))
    nothing = ImageSet((), np.zeros(0, np.int64), files=())
    block = model_block(
        config,
        Splits(NAMES, nothing, nothing),
        PREPROCESSING,
        np.array([6, 3, 1]),
        create_loss("ce", num_classes=3),
        {},
        network,
    )
    block |= {"class_temperatures": TAUS, "feature_norm": [5.0, 1.0]}
    folder.mkdir()
    save_model(folder / "model.safetensors", network, block)
    write_json(folder / "config.json", {
        "kind": "run", "format_version": 1, "config": {"data": {"path": str(images)}},
    })  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def model(run: Path) -> Path:
    path = run.parent / "trees.onnx"
    export_run(run, path, ExportConfig(adjust=1.0, ood="feature-norm", features=True, author="A. Author"))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_speed_is_in_the_card_and_survives_edits(run: Path, model: Path, tmp_path: Path) -> None:
    metrics = OnnxFile.open(model).card().metrics
    assert metrics["images_per_second"] > 0
    assert metrics["images_per_second_at"] == {"batch": 8, "threads": 1}
    other = tmp_path / "other.onnx"
    edit.recalibrate(model, Calibrator("temperature", 3, {"temperature": 1.5}, metrics={"ece": 0.1}), out=other)
    assert OnnxFile.open(other).card().metrics == {"ece": 0.1, **metrics}
    edit.recalibrate(other, None)
    assert OnnxFile.open(other).card().metrics == metrics
    assert "| images_per_second | " in call("inspect", other, "--markdown").stdout
    required = export_run(run, tmp_path / "required.onnx", ExportConfig(knobs="required"))
    assert required.metrics == {}  # it cannot be called with images alone


def test_run_is_exported_with_its_temperatures_prior_and_images(run: Path, model: Path) -> None:
    card = OnnxFile.open(model).card()
    assert card.class_temperatures == pytest.approx(TAUS)
    assert card.prior.train == pytest.approx(PRIOR)
    assert card.ood == {"kind": "feature-norm", "mu": 5.0, "sd": 1.0}
    assert card.verify is not None
    assert card.verify["images"] == ["random", "real"]
    x = PREPROCESSING.pixels(Image.open(run.parent / "images" / "ash" / "0.png"))[None]
    trained = load_run(run)
    with torch.inference_mode():
        z, _ = trained.network(torch.from_numpy(PREPROCESSING.normalise(x)))
    expected = softmax(z.numpy() / TAUS - np.log(np.array(PRIOR) * 3))
    np.testing.assert_allclose(session(model).run(["probabilities"], {"images": x})[0], expected, atol=1e-5)


def test_command_line_from_run_to_triton(run: Path, tmp_path: Path) -> None:
    calibrator, out = tmp_path / "c.json", tmp_path / "m.onnx"
    Calibrator("temperature", 3, {"temperature": 1.5}).save(calibrator)
    config = tmp_path / "e.toml"
    config.write_text('[export]\nadjust = 1.0\nlicence = "MIT"\n')
    result = call("export", run, "--config", config, "--adjust", "1.5", "--calibrator", calibrator, "--out", out)
    assert result.exit_code == 0, result.output
    assert "temperature 1.5" in result.stdout
    assert "total 1.5 towards uniform = 0 in training + 1.5 in the graph; 0.5 more than Bayes' rule" in result.stdout
    assert "licence             MIT" in result.stdout
    result = call("verify", out, "--run", run)
    assert result.exit_code == 0, result.output
    assert "agrees with torch" in result.stdout
    shown = json.loads(call("verify", out, "--run", run, "--json").stdout)
    assert shown["levels"] == ["all", "basic", "disabled", "extended"]
    assert shown["threads"] == [1, 2]
    result = call(
        "export", "triton", out, tmp_path / "repo", "--kserve", tmp_path / "k.yaml", "--storage-uri", "s3://x"
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "repo" / "trees" / "1" / "model.onnx").is_file()
    assert "InferenceService" in (tmp_path / "k.yaml").read_text()
    assert json.loads(call("inspect", out, "--json").stdout)["intact"]


def test_model_card_in_markdown(model: Path) -> None:
    text = call("inspect", model, "--markdown").stdout
    assert text.startswith("# trees\n")
    assert "| ash | 60.00 % | 33.33 % | 0.800 |" in text
    assert "| author | A. Author |" in text
    assert OnnxFile.open(model).metadata["model_author"] == "A. Author"


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        (ExportConfig(calibrator=Path("nowhere.json")), FormatError, "nowhere.json: cannot be read"),
        (ExportConfig(target_prior="ash;1", adjust=1.0), ConfigError, "is not a prior"),
        (ExportConfig(images=Path("nowhere")), DataError, "no such file or folder"),
    ],
)
def test_wrong_settings_of_a_run_are_named(
    run: Path, tmp_path: Path, config: ExportConfig, kind: type[CalibrantError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        export_run(run, tmp_path / "m.onnx", config)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "x.pt"), "does not end in .onnx"),
        (("--out", "x.onnx", "--knobs", "bakd"), '"bakd" is not possible'),
        (("--out", "x.onnx", "--ood", "norm"), '"norm" is not possible'),
    ],
)
def test_wrong_options_are_named(run: Path, arguments: tuple[str, ...], message: str) -> None:
    result = call("export", run, *arguments)
    assert isinstance(result.exception, CalibrantError)
    assert message in str(result.exception)


def test_calibrator_for_other_classes_is_refused(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    Calibrator("temperature", 4, {"temperature": 1.5}).save(path)
    with pytest.raises(CalibrantError, match="maps 4 classes, the run has 3"):
        export_run(run, tmp_path / "m.onnx", ExportConfig(calibrator=path))


def test_verify_names_what_does_not_belong(run: Path, model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    data = (run / "model.safetensors").read_bytes()
    (other / "model.safetensors").write_bytes(data[:-4] + b"\0\0\0\0")
    (other / "config.json").write_bytes((run / "config.json").read_bytes())
    result = call("verify", model, "--run", other)
    assert isinstance(result.exception, DataError)
    assert "is not the checkpoint" in str(result.exception)
    broken = tmp_path / "m.onnx"
    content = bytearray(model.read_bytes())
    begin, _ = OnnxFile.open(model).initializers["calibrant/head.bias"].data[0]
    content[begin + 3] ^= 1
    broken.write_bytes(content)
    result = call("verify", broken, "--run", run)
    assert isinstance(result.exception, FormatError)
    assert "graph do not match the hash" in str(result.exception)
    result = call("inspect", broken, "--check")
    assert isinstance(result.exception, CheckFailed)
    assert "CHANGED since export" in result.stdout


@pytest.mark.parametrize("wrong", [False, True])
def test_a_quantized_file_is_verified_by_its_winners(run: Path, model: Path, tmp_path: Path, wrong: bool) -> None:
    path = tmp_path / "half.onnx"
    file = OnnxFile.open(model)
    card = file.card()
    head = raw_head(file, card)
    assert head is not None
    weight, bias = np.float64(np.float16(head[0])), head[1] + (np.float64([9, 0, 0]) if wrong else 0)
    card = replace(card, precision={"dtype": "float16", "method": "fp16"}, verify=None)
    write_deployed(file, path, card, build_tail(card, weight, bias, weight.shape[1]))
    result = call("verify", path, "--run", run)
    assert "% of 24 images (96 asked)" in result.stdout
    assert (result.exit_code == 0) is not wrong
    assert ("(float16): agrees with torch" in result.stdout) is not wrong


def write_predictions(run: Path, *, wrong: bool = False) -> None:
    trained = load_run(run)
    files = sorted((run.parent / "images").rglob("*.png"))
    x = np.stack([PREPROCESSING.pixels(Image.open(f).convert("RGB")) for f in files])
    with torch.inference_mode():
        z, _ = trained.network(torch.from_numpy(PREPROCESSING.normalise(x)))
    labels = np.array([NAMES.index(f.parent.name) for f in files])
    ids = tuple(f.relative_to(run.parent / "images").as_posix() for f in files)
    logits = trained.adjust(z).numpy() + (np.float32([0.2, 0, 0]) if wrong else 0)
    (run / "predictions").mkdir(exist_ok=True)
    Predictions(ids, labels, logits.astype(np.float32), trained.source()).write(run / "predictions" / "val.parquet")


def test_nll_and_ece_of_the_runs_predictions_come_out_of_the_file(run: Path, tmp_path: Path) -> None:
    try:
        write_predictions(run)
        card = export_run(run, tmp_path / "m.onnx", ExportConfig(adjust=1.0))
        assert card.verify is not None
        found = card.verify["predictions"]
        assert found["rows"] == 24
        assert found["max_diff"] < 1e-5
        assert found["nll"]["torch"] == pytest.approx(found["nll"]["graph"], abs=1e-5)
        result = call("verify", tmp_path / "m.onnx", "--run", run)
        assert "val.parquet, 24 images" in result.stdout
        write_predictions(run, wrong=True)
        with pytest.raises(CheckFailed, match=r"failed\.onnx: the file does not give what the run's predictions say"):
            export_run(run, tmp_path / "n.onnx", ExportConfig(adjust=1.0))
        assert not (tmp_path / "n.onnx").exists()
        result = call("verify", tmp_path / "m.onnx", "--run", run)
        assert isinstance(result.exception, CheckFailed)
        assert "DOES NOT agree" in result.stdout
    finally:
        shutil.rmtree(run / "predictions", ignore_errors=True)


def test_a_fitted_abstain_threshold_travels_unless_an_adjustment_would_break_its_promise(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    fitted = fit("temperature", rng.normal(size=(50, 3)), rng.integers(0, 3, 50))
    write_text(tmp_path / "c.json", replace(fitted, abstain={"wanted_risk": 0.1, "threshold": 0.625}).to_json())
    plain = ExportConfig(calibrator=tmp_path / "c.json", verify=False)
    assert export_run(run, tmp_path / "a.onnx", plain).abstain_below == 0.625
    assert export_run(run, tmp_path / "b.onnx", replace(plain, abstain_below=0.5)).abstain_below == 0.5
    assert export_run(run, tmp_path / "c.onnx", replace(plain, adjust=1.0)).abstain_below is None
    assert "without a prior adjustment" in caplog.text


@pytest.mark.slow
def test_a_wide_grey_network_says_in_the_file_what_it_said_in_training(run: Path, tmp_path: Path) -> None:
    table = {
        "out": str(tmp_path / "wide"), "data": {"path": str(run.parent / "images")}, "schedule": {"epochs": 1},
        "model": {"name": "test_resnet", "image_size": [24, 40], "in_chans": 1, "pretrained": False},
        "engine": {"batch_size": 8, "tensorboard": False, "device": "cpu"},
    }  # fmt: skip
    card = export_run(train_run(train_config(table)), tmp_path / "wide.onnx", ExportConfig())
    assert (card.preprocessing.size, card.preprocessing.crop) == ((24, 40), "cover")
    assert card.verify is not None
    assert card.verify["predictions"]["max_diff"] < 1e-5
