"""A training as a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from calibrant.train.config import train_config
from calibrant.train.jobs.training import TrainJob, finished, train_key

TABLE = {
    "model": {"name": "test_resnet", "image_size": 32}, "loss": {"name": "fedlas-ls"}, "schedule": {"epochs": 2},
    "engine": {"tensorboard": False, "batch_size": 8},
}  # fmt: skip


def test_the_result_holds_what_the_loss_reported_and_a_kill_before_the_test_set_is_mended(
    image_folder: Path, tmp_path: Path
) -> None:
    config = train_config({**TABLE, "data": {"path": str(image_folder)}})
    job = TrainJob(config, "trainings/one", train_key(config), lean=True)
    result = job.run(tmp_path)
    run = tmp_path / "trainings" / "one"
    alphas = [line["loss"]["mean_alpha"] for line in result["epochs"]]
    assert len(alphas) == 2
    assert result["measured"]["mean_alpha"] == sum(alphas) / 2
    assert 0 < result["measured"]["mean_alpha"] < 0.1
    assert finished(run)
    assert not (run / "checkpoint.safetensors").exists()
    before = (run / "model.safetensors").stat().st_mtime_ns
    assert job.run(tmp_path) == result
    assert (run / "model.safetensors").stat().st_mtime_ns == before


def test_clipped_gradients_tell_the_largest_norm_before_that_after_the_warm_up(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def watched(parameters: list[torch.Tensor], limit: float) -> torch.Tensor:
        own = torch.stack([p.grad.double().square().sum() for p in parameters if p.grad is not None]).sum().sqrt()
        seen.append(float(own))
        return clip(parameters, limit)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", watched)
    config = train_config({
        **TABLE, "data": {"path": str(image_folder)}, "schedule": {"epochs": 3, "warmup_epochs": 1},
        "optimizer": {"clip_norm": 0.5},
    })  # fmt: skip
    result = TrainJob(config, "trainings/one", train_key(config)).run(tmp_path)
    updates = len(seen) // 3
    each = [max(seen[i * updates : (i + 1) * updates]) for i in range(3)]
    assert [line["train"]["gradient_norm"] for line in result["epochs"]] == pytest.approx(each, rel=1e-5)
    assert result["measured"]["largest_gradient_norm"] == pytest.approx(max(each[1:]), rel=1e-5)


def test_gradients_that_are_not_clipped_tell_no_norm(image_folder: Path, tmp_path: Path) -> None:
    config = train_config({**TABLE, "data": {"path": str(image_folder)}})
    assert config.optimizer.clip_norm is None
    result = TrainJob(config, "trainings/one", train_key(config)).run(tmp_path)
    assert "gradient_norm" not in result["epochs"][0]["train"]
    assert "largest_gradient_norm" not in result["measured"]


def test_a_key_knows_the_images_and_not_where_they_lie(tmp_path: Path) -> None:
    config = train_config(TABLE)
    there = replace(config, data=replace(config.data, path=tmp_path, cache_dir=tmp_path, layout="folder"))
    assert train_key(config, "images") == train_key(there, "images")
    assert train_key(config, "images") != train_key(config, "others")
    assert train_key(config, "images") != train_key(replace(config, seed=2), "images")
    assert train_key(config, "images") != train_key(replace(config, loss=replace(config.loss, name="ce")), "images")
    quiet = replace(config, engine=replace(config.engine, tensorboard=True, checkpoint_minutes=1.0))
    assert train_key(config, "images") == train_key(quiet, "images")
