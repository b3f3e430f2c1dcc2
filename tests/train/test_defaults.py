"""What a configuration leaves open, decided from weights and data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.images.image_set import ImageSet
from calibrant.train import defaults
from calibrant.train.config import TrainConfig, train_config
from calibrant.train.data.split import Splits
from calibrant.train.defaults import resolved

CPU = torch.device("cpu")


def splits(train: int, val: int = 96) -> Splits:
    def images(n: int) -> ImageSet:
        files = tuple(Path(f"{i}.png") for i in range(n))
        return ImageSet(tuple(map(str, files)), np.zeros(n, np.int64), files)

    return Splits(("a", "b"), images(train), images(val), None)


def decided(*settings: str, train: int = 384, val: int = 96) -> TrainConfig:
    return resolved(train_config({}, settings), splits(train, val), CPU)


def test_from_scratch_the_usual_ones() -> None:
    config = decided("model.pretrained=false")
    assert (config.schedule.epochs, config.schedule.warmup_epochs, config.optimizer.lr) == (30, 0.0, 1e-3)
    assert (config.optimizer.head_lr_factor, config.model.head_init) == (1.0, "model")
    assert (config.engine.freeze_bn, config.engine.select, config.engine.keep) == ("off", "accuracy", "best")
    assert config.engine.frozen_head == "off"


def test_on_pretrained_weights_those_that_were_measured() -> None:
    config = decided("model.pretrained=true")
    assert config.schedule.epochs == 9  # 12 updates an epoch, 100 at least
    assert config.schedule.warmup_epochs == pytest.approx(1.35)
    assert (config.optimizer.lr, config.optimizer.head_lr_factor, config.model.head_init) == (1e-4, 10.0, "zero")
    assert (config.engine.freeze_bn, config.engine.select, config.engine.keep) == ("on", "nll", "last")
    assert config.engine.frozen_head == "auto"


@pytest.mark.parametrize(("images", "epochs"), [(100, 25), (800, 4), (20_000, 4)])
def test_epochs_of_fine_tuning_give_a_hundred_updates_or_four_passes(images: int, epochs: int) -> None:
    assert decided("model.pretrained=true", train=images).schedule.epochs == epochs


def test_batch_statistics_learn_with_many_images_in_large_batches_only() -> None:
    many = ("model.pretrained=true", "engine.batch_size=64")
    assert decided(*many, train=20_000).engine.freeze_bn == "off"
    assert decided(*many, train=9_999).engine.freeze_bn == "on"
    assert decided("model.pretrained=true", train=20_000).engine.freeze_bn == "on"


def test_a_thousand_validation_images_or_patience_choose_the_epoch() -> None:
    assert decided("model.pretrained=true", val=1000).engine.keep == "best"
    assert decided("model.pretrained=true", "engine.patience=2").engine.keep == "best"


def test_what_is_said_is_kept() -> None:
    said = (
        "model.pretrained=true", "schedule.epochs=3", "schedule.warmup_epochs=1", "optimizer.lr=0.5",
        "optimizer.head_lr_factor=2", "model.head_init=model", "engine.freeze_bn=off", "engine.select=ece",
        "engine.keep=best",
    )  # fmt: skip
    config = decided(*said)
    assert resolved(config, splits(384), CPU) == config
    assert (config.schedule.epochs, config.optimizer.lr, config.engine.select) == (3, 0.5, "ece")


def test_pretrained_is_the_default_where_weights_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decided().model.pretrained is False  # tests ask no hub
    monkeypatch.setattr(defaults, "weights_at_hand", lambda name: name == "resnet18")
    assert decided().model.pretrained is True
    assert decided("model.name=resnet50").model.pretrained is False


def test_a_local_file_is_no_reason_to_ask_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "weights_at_hand", lambda _: pytest.fail("was asked"))
    config = decided("model.weights=w.safetensors")
    assert (config.model.pretrained, config.optimizer.head_lr_factor) == (False, 10.0)


def test_half_floats_need_a_gpu() -> None:
    with pytest.raises(ConfigError, match="fp16 needs a CUDA device"):
        decided("engine.amp=fp16")


Small = Callable[..., TrainConfig]


def test_a_run_writes_what_was_decided(small: Small) -> None:
    from calibrant.train import fit
    from calibrant.train.run.folder import read_config

    run: Path = fit(small("schedule.epochs=1"))
    table = read_config(run)["config"]
    assert (table["model"]["pretrained"], table["engine"]["select"], table["optimizer"]["lr"]) == (
        False,
        "accuracy",
        1e-3,
    )
