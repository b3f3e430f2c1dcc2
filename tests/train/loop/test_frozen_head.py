"""The head on the frozen network: solved from features, kept unless training beats it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from calibrant.artifacts.predictions import read_predictions
from calibrant.train import TrainConfig, engine, fit
from calibrant.train.loop.epochs import Epoch
from calibrant.train.loop.frozen_head import LinearHead, can_have_one
from calibrant.train.losses import create_loss
from calibrant.train.model.feature_model import FeatureModel, build_model
from calibrant.train.run.folder import MODEL_FILE

Small = Callable[..., TrainConfig]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Of a network with a random backbone: its features tell colours apart well enough."""
    torch.manual_seed(3)
    file = tmp_path / "weights.safetensors"
    save_file({k: v.contiguous() for k, v in build_model("test_resnet", 3).network.state_dict().items()}, file)
    return file


def lines(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_head_that_training_cannot_beat_is_kept(small: Small, weights: Path) -> None:
    epochs: list[Epoch] = []
    config = small(f"model.weights={weights}", "optimizer.lr=1e-9", "schedule.epochs=2")
    run = fit(config, on_epoch=epochs.append)
    assert [e.epoch for e in epochs] == [0, 1, 2]
    assert [line["best"] for line in lines(run)] == [True, False, False]
    kept, came = load_file(run / MODEL_FILE), load_file(weights)
    assert all(torch.equal(kept[k], v) for k, v in came.items() if not k.startswith("fc."))
    assert (
        epochs[0].val["nll"] < epochs[2].val["nll"] == pytest.approx(np.log(3), abs=1e-3)
    )  # a zero head knows nothing
    predictions = read_predictions(run / "predictions" / "val.parquet")
    right = (predictions.logits.argmax(1) == predictions.labels).mean()
    assert right == pytest.approx(epochs[0].val["accuracy"])


def test_training_that_ends_better_replaces_it_and_only_its_end_is_judged(
    small: Small, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poor(network: FeatureModel, *_: object, **__: object) -> LinearHead:
        return LinearHead(torch.zeros(3, network.feature_dim), torch.zeros(3), float(np.log(3)), "poor")

    monkeypatch.setattr(engine, "fit_frozen_head", poor)
    epochs: list[Epoch] = []
    config = small(f"model.weights={weights}", "optimizer.lr=0.01", "schedule.epochs=6", "engine.freeze_bn=off")
    run = fit(config, on_epoch=epochs.append)
    assert epochs[-1].val["nll"] < epochs[0].val["nll"]
    assert [e.best for e in epochs] == [True, *[False] * 5, True]
    assert lines(run)[0]["head"]


def test_a_run_that_was_stopped_still_knows_the_head(small: Small, weights: Path, tmp_path: Path) -> None:
    class Stop(Exception):  # noqa: N818
        pass

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 1:
            raise Stop

    config = small(f"model.weights={weights}", "optimizer.lr=1e-9", "schedule.epochs=3")
    with pytest.raises(Stop):
        fit(config, on_epoch=stop)
    run = fit(config, resume=True)
    assert [line["best"] for line in lines(run)] == [True, False, False, False]


@pytest.mark.parametrize(
    ("loss", "options", "possible"),
    [("ce", {}, True), ("fedlas-ls", {}, True), ("balanced-softmax", {"class_counts": [5, 3, 2]}, False)],
)
def test_only_losses_that_leave_logits_and_priors_alone(loss: str, options: dict[str, object], possible: bool) -> None:
    network = build_model("test_resnet", 3)
    made = create_loss(loss, num_classes=3, feature_dim=network.feature_dim, **options)  # type: ignore[arg-type]
    assert can_have_one(network, made, 0.0) is possible
    assert not can_have_one(network, made, 0.5)  # a sampler that balances classes


def test_it_can_be_switched_off(small: Small, weights: Path) -> None:
    epochs: list[Epoch] = []
    fit(small(f"model.weights={weights}", "engine.frozen_head=off", "schedule.epochs=1"), on_epoch=epochs.append)
    assert [e.epoch for e in epochs] == [1]
