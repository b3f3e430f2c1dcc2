"""A training as a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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


def test_a_key_knows_the_images_and_not_where_they_lie(tmp_path: Path) -> None:
    config = train_config(TABLE)
    there = replace(config, data=replace(config.data, path=tmp_path, cache_dir=tmp_path, layout="folder"))
    assert train_key(config, "images") == train_key(there, "images")
    assert train_key(config, "images") != train_key(config, "others")
    assert train_key(config, "images") != train_key(replace(config, seed=2), "images")
    assert train_key(config, "images") != train_key(replace(config, loss=replace(config.loss, name="ce")), "images")
    quiet = replace(config, engine=replace(config.engine, tensorboard=True, checkpoint_minutes=1.0))
    assert train_key(config, "images") == train_key(quiet, "images")
