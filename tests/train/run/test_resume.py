"""Kill -9 at random moments, with other numbers of loader workers at each start, against a run left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calibrant.errors import ConfigError, DataError, ModelError
from calibrant.train import TrainConfig, fit
from calibrant.train.run import resume
from calibrant.train.run.folder import MODEL_FILE
from calibrant.train.run.resume import resumed_config

Small = Callable[..., TrainConfig]

ROOT = Path(__file__).resolve().parents[3]


def _run(table: dict[str, object], folder: Path, kills: int) -> dict[str, int]:
    file = folder / f"{Path(str(table['out'])).name}.json"
    file.write_text(json.dumps(table))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kill_worker.py")), str(file), "11", str(kills)],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_ten_kills_leave_the_bits_of_a_run_that_was_never_killed(image_folder: Path, tmp_path: Path) -> None:
    table: dict[str, object] = {
        "data": {"path": str(image_folder), "cache": "off"},
        "model": {"name": "test_resnet", "image_size": 32, "options": {"drop_rate": 0.1, "drop_path_rate": 0.1}},
        "loss": "fedlas-ls", "optimizer": {"clip_norm": 1.0}, "schedule": {"epochs": 12, "warmup_epochs": 1},
        "augment": {"flip": "both", "superpixel_mix": 2, "superpixels": [4, 8], "mix_prob": 0.5, "transplant": 0.5},
        "engine": {"batch_size": 4, "accumulate": 2, "ema_decay": 0.9, "amp": "bf16", "checkpoint_updates": 1,
                   "tensorboard": False, "device": "cpu"},
    }  # fmt: skip
    alone = _run({**table, "out": str(tmp_path / "alone")}, tmp_path, 0)
    killed = _run({**table, "out": str(tmp_path / "killed")}, tmp_path, 10)
    assert (alone["starts"], killed["kills"]) == (1, 10)
    assert killed["inside_a_write"] >= 1
    for name in ("checkpoint.safetensors", "model.safetensors"):  # weights, loss, EMA, optimizer, position
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name
    assert not list((tmp_path / "killed").glob(".*.tmp.*"))
    drop = ("seconds",)
    lines = [
        [{k: v for k, v in json.loads(x).items() if k not in drop} for x in
         (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        for run in ("alone", "killed")
    ]  # fmt: skip
    assert len(lines[0]) == 12
    assert lines[0] == lines[1]


def test_going_on_refuses_other_settings_and_other_images(small: Small, image_folder: Path, tmp_path: Path) -> None:
    root = shutil.copytree(image_folder, tmp_path / "grown")
    run = fit(small("schedule.epochs=1", f"data.path={root}"))
    with pytest.raises(ConfigError, match="optimizer.lr was 0.001 and is 1.0"):
        fit(resumed_config(run, ["optimizer.lr=1.0"]), resume=True)
    shutil.copy(root / "train/red/001.png", root / "train/red/zzz.png")
    with pytest.raises(DataError, match="not those that the run started with"):
        fit(resumed_config(run, []), resume=True)


def test_a_run_of_an_earlier_version_goes_on_though_it_lacks_newer_settings(small: Small) -> None:
    run = fit(small("schedule.epochs=1"))
    file = run / "config.json"
    block = json.loads(file.read_text())
    del block["config"]["augment"]["transplant"]
    del block["config"]["engine"]["sync_bn"]
    file.write_text(json.dumps(block))
    before = (run / MODEL_FILE).read_bytes()
    assert fit(resumed_config(run, []), resume=True) == run
    assert (run / MODEL_FILE).read_bytes() == before  # it was finished: nothing to train


def test_processes_wait_until_a_shared_folder_shows_all_of_them_the_same_checkpoint(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("schedule.epochs=1")
    fit(config)
    (config,) = [resumed_config(config.out)]
    late = [torch.tensor([[0, 0, 0], [1, 0, 3]]), torch.tensor([[1, 0, 3], [1, 0, 3]])]
    monkeypatch.setattr(resume, "gather_uneven", lambda own: late.pop(0))
    monkeypatch.setattr(resume.time, "sleep", lambda seconds: None)
    assert resume.state_for_all(config, torch.device("cpu"))["position"]["epoch"] == 1
    assert late == []
    monkeypatch.setattr(resume, "gather_uneven", lambda own: torch.tensor([[0, 0, 0], [1, 0, 3]]))
    monkeypatch.setattr(resume, "SIGHT_SECONDS", -1.0)
    with pytest.raises(ModelError, match="processes see different checkpoints"):
        resume.state_for_all(config, torch.device("cpu"))
