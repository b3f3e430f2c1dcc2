"""Plugins run when asked for, are recorded by hash, and are never found by themselves."""

from __future__ import annotations

import importlib
import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant import plugins
from calibrant.errors import ConfigError

EXAMPLE = Path(__file__).parent / "plugin_example.py"


def test_what_a_file_registers_is_known_by_name_and_hash(example_plugin: Path) -> None:
    (plugin,) = plugins.loaded()
    assert plugin.name == "plugin_example.py"
    assert plugin.sha256 == plugins.sha256_of(EXAMPLE)
    assert plugin.offers == {
        "losses": ("squared",), "models": ("tiny",), "datasets": ("colours",), "transforms": ("dim",),
    }  # fmt: skip
    assert plugins.load(example_plugin) is plugin
    assert plugins.registered("models")["tiny"].head == "last"


def test_what_is_needed_and_not_loaded_is_named() -> None:
    recorded = [{"name": "mine.py", "sha256": "ab" * 32, "offers": {"models": ["theirs"]}}]
    with pytest.raises(ConfigError, match=r'run: its model "theirs" comes from the plugin mine.py .*--plugin mine.py'):
        plugins.require(recorded, "models", "theirs", "run")
    plugins.require(recorded, "models", "resnet18", "run")
    with pytest.raises(ConfigError, match=r"started with the plugin mine.py"):
        plugins.require_same(recorded, "run")


def test_a_changed_file_is_told_and_does_not_go_on(example_plugin: Path, caplog: pytest.LogCaptureFixture) -> None:
    (now,) = plugins.loaded()
    before = [{**now.to_dict(), "sha256": "ab" * 32}]
    with caplog.at_level(logging.WARNING):
        plugins.require(before, "models", "tiny", "run")
    assert "is not as it was" in caplog.text
    with pytest.raises(ConfigError, match="has changed since the run began"):
        plugins.require_same(before, "run")
    plugins.require_same([now.to_dict()], "run")


def test_what_cannot_be_run_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(ConfigError, match="bad.py: cannot be run .*division by zero"):
        plugins.load(tmp_path / "bad.py")
    with pytest.raises(ConfigError, match="no such file"):
        plugins.load(tmp_path / "none.py")
    with pytest.raises(ConfigError, match="neither a .py file nor an entry point"):
        plugins.load("nobody")


def test_an_installed_package_is_asked_for_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_code.py").write_text(
        "from calibrant import plugins\nplugins.register_loss('from-afar')(lambda logits, labels: logits.sum())\n"
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\ntheirs = their_code\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    plugin = plugins.load("theirs")
    assert plugin.offers == {"losses": ("from-afar",)}
    plugins.forget("theirs")
    assert "from-afar" not in plugins.registered("losses")


def test_calibrators_and_metrics_of_a_plugin_stand_in_the_tables(tmp_path: Path) -> None:
    from calibrant.calibration import evaluate, fit
    from calibrant.calibration.metrics.table import METRICS, metric

    (tmp_path / "more.py").write_text(
        "from calibrant import plugins\n"
        "from calibrant.calibration.calibrators.table import FORMS\n"
        "from calibrant.calibration.intervals.measured import Measured\n"
        "from calibrant.calibration.metrics.table import Metric\n"
        "from dataclasses import replace\n"
        "plugins.register_calibrator(replace(FORMS['temperature'], method='warmth'))\n"
        "plugins.register_metric(Metric('rows_seen', 'rows', 'number', 'higher', 'how many', lambda p, y, weights=None:"
        " float(len(p)), measured=lambda s, bins: Measured(float(s.rows))))\n"
    )
    z, y = np.random.default_rng(0).normal(size=(90, 3)), np.arange(90) % 3
    before = len(METRICS)
    plugins.load(tmp_path / "more.py")
    try:
        found = fit("warmth", z, y)
        assert found.method == "warmth"
        np.testing.assert_array_equal(found.logits(z), fit("temperature", z, y).logits(z))
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        assert evaluate(p, y).metrics["rows_seen"].value == 90
        assert metric("rows_seen").function(p, y) == 90
        assert len(METRICS) == before + 1
    finally:
        plugins.forget(tmp_path / "more.py")
    with pytest.raises(ConfigError, match="warmth"):
        fit("warmth", z, y)


def test_a_name_of_ours_cannot_be_taken() -> None:
    from calibrant.plugins import Extended

    plugins.register_metric(type("M", (), {"key": "ece"}))
    try:
        with pytest.raises(ConfigError, match='"ece" is one of our own metrics'):
            list(Extended({"ece": 1}, "metrics"))
    finally:
        plugins._TABLES["metrics"].pop("ece")


def _calibrant(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "calibrant", *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_plugins_loss_model_and_data_go_the_whole_way(tmp_path: Path) -> None:
    """Train, kill, resume, predict, export, serve: 35 s, nearly all of them starts of Python."""
    pytest.importorskip("onnx")
    own = ("--plugin", str(EXAMPLE))
    command = (
        "train", *own, "--data", "plugin:colours", "--model", "tiny", "--loss", "squared", "--batch-size", "16",
        "--epochs", "400", "--lr", "0.03", "--out", "run", "--set", 'augment.transforms=["dim"]',
        "--set", "augment.crop=none", "--set", "engine.tensorboard=false", "--set", "engine.patience=30",
    )  # fmt: skip
    training = subprocess.Popen(
        [sys.executable, "-m", "calibrant", *command], cwd=tmp_path, stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    end = time.monotonic() + 240
    while not (tmp_path / "run" / "checkpoint.safetensors").is_file() and time.monotonic() < end:
        assert training.poll() is None
        time.sleep(0.05)
    training.send_signal(signal.SIGKILL)
    training.wait()
    resumed = _calibrant("train", "--resume", "--out", "run", *own, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    refused = _calibrant("predict", "run", "--data", "plugin:colours", cwd=tmp_path)
    assert refused.returncode == 2
    assert "pass it again: --plugin plugin_example.py" in refused.stderr
    predicted = _calibrant("predict", "run", "--data", "plugin:colours", "--out", "p.parquet", *own, cwd=tmp_path)
    assert predicted.returncode == 0, predicted.stderr
    exported = _calibrant("export", "run", "--out", "m.onnx", *own, cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    from calibrant.artifacts.predictions import read_predictions

    test = read_predictions(tmp_path / "p.parquet")
    assert (test.logits.argmax(1) == test.labels).mean() > 0.9
    pixels = np.zeros((1, 24, 24, 3), np.uint8)
    pixels[..., 0] = 120
    from calibrant.serve import load

    found = served(tmp_path / "m.onnx", pixels)
    np.testing.assert_allclose(found, load(tmp_path / "m.onnx").predict(pixels).probabilities, atol=1e-6)


def served(model: Path, pixels: np.ndarray) -> np.ndarray:
    """What `calibrant serve` answers, over HTTP."""
    from calibrant.serve.processes.background import running

    tensor = {"name": "images", "shape": list(pixels.shape), "datatype": "UINT8", "data": pixels.ravel().tolist()}
    with running(model) as server:
        request = urllib.request.Request(f"{server}/v2/models/run/infer", json.dumps({"inputs": [tensor]}).encode())
        answer = json.loads(urllib.request.urlopen(request, timeout=60).read())
    found = next(o["data"] for o in answer["outputs"] if o["name"] == "probabilities")
    return np.asarray(found).reshape(len(pixels), -1)


TIMM = """
import timm
from torch import nn
from timm.models import register_model
from timm.models.resnet import BasicBlock, ResNet


@register_model
def own_resnet(pretrained=False, **options):
    options = {k: v for k, v in options.items() if k in ("num_classes", "in_chans", "drop_rate")}
    model = ResNet(BasicBlock, [1, 1, 1, 1], channels=(8, 8, 16, 16), stem_width=8, **options)
    model.pretrained_cfg = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    return model
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_registered_with_timm_trains_predicts_is_exported_and_served(tmp_path: Path) -> None:
    """Four starts of Python. Before plugins, `predict` and `export` refused the run of such a model."""
    pytest.importorskip("onnx")
    (tmp_path / "mine.py").write_text(TIMM + EXAMPLE.read_text())
    own = ("--plugin", "mine.py")
    steps = (
        ("train", *own, "--data", "plugin:colours", "--model", "own_resnet", "--epochs", "1", "--out", "run",
         "--image-size", "32", "--set", "engine.tensorboard=false"),
        ("predict", "run", "--data", "plugin:colours", "--out", "p.parquet", *own),
        ("export", "run", "--out", "m.onnx", *own),
    )  # fmt: skip
    for step in steps:
        done = _calibrant(*step, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    from calibrant.artifacts.predictions import read_predictions
    from calibrant.serve import load

    test = read_predictions(tmp_path / "p.parquet")
    data = np.stack([runpy.run_path(str(EXAMPLE))["Colours"](40, 2)[n][0] for n in range(8)])
    card = load(tmp_path / "m.onnx").card
    pixels = np.stack([card.preprocessing.pixels(Image.fromarray(row)) for row in data])
    logits = load(tmp_path / "m.onnx").outputs(pixels)["logits"]
    np.testing.assert_allclose(logits, test.logits[:8], atol=1e-3)
    z = test.logits[:8].astype(np.float64)
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(served(tmp_path / "m.onnx", pixels), p, atol=1e-3)
