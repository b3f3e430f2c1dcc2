"""A small image folder, and a configuration that trains on it in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from calibrant.train.config import TrainConfig, train_config

COLOURS = {"blue": (40, 60, 200), "green": (50, 170, 60), "red": (200, 60, 40)}


def write_images(folder: Path, colour: tuple[int, int, int], count: int, *, seed: int, size: int = 24) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for i in range(count):
        noise = rng.normal(0, 60, (size, size, 3))
        pixels = np.clip(np.asarray(colour) + noise, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:03d}.png")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DIR/{train,val,test}/{blue,green,red}: 14, 10 and 7 training images, 5 of each elsewhere."""
    root = tmp_path_factory.mktemp("images")
    for k, (name, colour) in enumerate(COLOURS.items()):
        write_images(root / "train" / name, colour, (14, 10, 7)[k], seed=k)
        write_images(root / "val" / name, colour, 5, seed=10 + k)
        write_images(root / "test" / name, colour, 5, seed=20 + k)
    return root


@pytest.fixture
def small(image_folder: Path, tmp_path: Path) -> Callable[..., TrainConfig]:
    """small("loss.name=vace", ...): a configuration over the image folder with a tiny network."""

    def make(*settings: str, **tables: Any) -> TrainConfig:
        table: dict[str, Any] = {
            "out": str(tmp_path / "run"), "data": {"path": str(image_folder)},
            "model": {"name": "test_resnet", "image_size": 32}, "schedule": {"epochs": 2},
            "engine": {"batch_size": 8, "tensorboard": False, "device": "cpu"},
        }  # fmt: skip
        return train_config({**table, **tables}, settings)

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
