"""The line before training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file

from calibrant.train import TrainConfig, fit
from calibrant.train.model.feature_model import build_model

Small = Callable[..., TrainConfig]


def line(config: TrainConfig) -> str:
    told: list[str] = []
    fit(config, on_start=told.append)
    (found,) = told
    return found


def test_it_says_images_model_rates_and_schedule(small: Small) -> None:
    found = line(small("schedule.epochs=1"))
    assert found.startswith(
        "31 train, 15 val, 15 test images of 3 classes at 32 x 32 px; test_resnet from scratch (no pre"
    )
    assert found.endswith("weights learn; cpu, adamw 0.001; 1 epochs of 3 updates")


def test_it_says_what_fine_tuning_decided(small: Small, tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    save_file({k: v.contiguous() for k, v in build_model("test_resnet", 3).network.state_dict().items()}, file)
    torch.manual_seed(0)
    found = line(small(f"model.weights={file}", "schedule.epochs=1", "model.train_last=1"))
    assert "test_resnet from mine.safetensors" in found
    assert " M of " in found
    assert "adamw 0.0001 (classifier 0.001)" in found
    assert found.endswith("batch norm keeps the statistics of the weights")
