"""A study that runs in seconds: five classes of coloured squares and a tiny network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

TABLE = """
title = "squares"
reference = "ce"
metrics = ["accuracy", "nll", "brier", "ece", "adaptive_ece"]
seeds = 2
[base.model]
name = "test_resnet"
image_size = 32
[base.optimizer]
lr = 3e-3
[base.schedule]
epochs = 4
warmup_epochs = 2
[base.engine]
batch_size = 32
[base.augment]
crop = "none"
[[data]]
name = "squares"
[[method]]
name = "ce"
[[method]]
name = "fedlas-ls"
set.loss.name = "fedlas-ls"
[[method]]
name = "ls, its alpha"
set.loss.name = "ls"
control = "fedlas-ls: plain smoothing"
measured = { "loss.alpha" = "fedlas-ls mean_alpha" }
[[method]]
name = "vace, lam 0"
set.loss = { name = "vace", lam = 0.0 }
[scale.tiny]
images = 60
test_images = 0.5
epochs = 0.5
seeds = 2
"""


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 training and 100 test images of 5 classes, noisy enough that none is perfect."""
    rng = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("squares") / "squares.npz"
    arrays = {}
    for split, count in (("train", 200), ("test", 100)):
        labels = np.arange(count) % 5
        centre = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [160, 160, 60], [120, 120, 120]])[labels]
        x = centre[:, None, None, :] + rng.normal(0, 60, (count, 1, 1, 3)) + rng.normal(0, 20, (count, 16, 16, 3))
        arrays |= {f"x_{split}": x.clip(0, 255).astype(np.uint8), f"y_{split}": labels}
    np.savez(file, **arrays)
    return file


@pytest.fixture
def study_file(tmp_path: Path) -> Path:
    file = tmp_path / "squares.toml"
    file.write_text(TABLE)
    return file
