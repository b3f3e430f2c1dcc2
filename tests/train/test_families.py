"""One model of each family of timm: features proven, and thirty of them trained and used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from calibrant.artifacts.predictions import read_predictions
from calibrant.images.image_set import ImageSet
from calibrant.train import fit, load_run, train_config
from calibrant.train.data.split import Splits
from calibrant.train.model.feature_model import build_model

FAMILIES: dict[str, tuple[str, int, str]] = {
    family: (name, size, recipe)
    for family, (name, size, recipe) in json.loads(Path(__file__).with_name("families.json").read_text()).items()
}
ODD = [family for family, (_, _, recipe) in FAMILIES.items() if recipe != "plain"]
TRAINED = [
    *(family for family in ODD if family != "samvit"),  # 86 million parameters
    "resnet", "convnext", "vit_plain", "swin", "mobilenetv", "efficientnet", "regnety", "densenet", "maxvit", "repvit",
    "fastvit", "eva", "ghostnet", "mixer", "poolformer", "coatnet",
]  # fmt: skip


def test_the_list_has_at_least_135_families_and_the_odd_ones() -> None:
    assert len(FAMILIES) >= 135
    assert len(ODD) >= 15
    assert len(TRAINED) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_head_of_features_is_the_logits_in_every_family(family: str) -> None:
    name, size, recipe = FAMILIES[family]
    model = build_model(name, 4, input_size=(size, size)).eval()
    assert model.recipe == recipe
    for layer in model.classifier_layers():
        for p in layer.parameters():  # other weights than those of the proof
            nn.init.normal_(p, 0.1, 0.3)
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        logits, features = model(x)
        expected = model.network(x)
    assert features.shape == (2, model.feature_dim)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "loss"), [(f, ("vace", "fedlas-ls")[i % 2]) for i, f in enumerate(TRAINED)])
def test_a_step_of_training_and_predictions(family: str, loss: str, tmp_path: Path) -> None:
    name, size, _ = FAMILIES[family]
    pixels = np.random.default_rng(0).integers(0, 256, (12, size, size, 3)).astype(np.uint8)
    images = ImageSet(tuple(map(str, range(12))), np.arange(12) % 3, pixels=pixels)
    splits = Splits(("a", "b", "c"), images.rows(np.arange(6)), images.rows(np.arange(6, 12)))
    config = train_config({
        "out": str(tmp_path), "model": {"name": name, "image_size": size}, "loss": loss, "schedule": {"epochs": 1},
        "optimizer": {"name": "momentum", "lr": 1e-3}, "augment": {"crop": "none"},
        "engine": {"batch_size": 6, "tensorboard": False, "device": "cpu"},
    })  # fmt: skip
    run = fit(config, splits=splits)
    line = json.loads((run / "metrics.jsonl").read_text())
    assert np.isfinite(line["train"]["loss"])
    assert line["update"] == 1
    assert np.isfinite(read_predictions(run / "predictions" / "val.parquet").logits).all()
    if loss == "vace":
        taus = load_run(run).class_temperatures
        assert taus is not None
        assert taus.max() > 1.0  # the statistics have seen the features
