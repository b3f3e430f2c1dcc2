"""Networks that are not timm's are taken apart at their head, and proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from calibrant import plugins
from calibrant.errors import ModelError
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.foreign import headed, last_linear

CFG = {"input_size": (3, 24, 24)}


def plain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5), nn.Linear(5, 3))


def test_a_module_gives_logits_and_the_features_that_they_come_from() -> None:
    x = torch.randn(2, 3, 24, 24)
    expected = plain()(x)
    network = headed(plain(), "4", CFG)
    torch.testing.assert_close(network(x), expected)
    torch.testing.assert_close(network.get_classifier()(network.forward_features(x)), expected)
    assert last_linear(plain(), 3) == "4"


def test_a_head_that_is_not_the_last_thing_is_refused() -> None:
    with pytest.raises(ModelError, match='is not what its module "3" gives'):
        headed(plain(), "3", CFG)
    with pytest.raises(ModelError, match='no module "fc"; it has 3, 4'):
        headed(plain(), "fc", CFG)
    with pytest.raises(ModelError, match="no linear layer of 9 classes"):
        last_linear(plain(), 9)


def test_a_plugins_model_is_built_with_its_options(example_plugin: Path) -> None:
    model = build_model("tiny", 2, width=6)
    assert (model.feature_dim, model.num_classes, model.input_size) == (6, 2, (24, 24))
    logits, features = model(torch.randn(2, 3, 24, 24))
    torch.testing.assert_close(model.classifier_layers()[0](features), logits)
    with pytest.raises(ModelError, match="does not take these options"):
        build_model("tiny", 2, height=6)


def test_a_plugins_model_without_a_head_is_asked_for_it(example_plugin: Path) -> None:
    plugins.register_model("headless")(lambda num_classes: plain())
    try:
        with pytest.raises(ModelError, match="does not say which of its modules is the head.*3, 4"):
            build_model("headless", 3)
    finally:
        del plugins._TABLES["models"]["headless"]  # type: ignore[attr-defined]


def test_a_model_of_timm_comes_out_of_a_folder(tmp_path: Path) -> None:
    cfg = {"architecture": "test_resnet", "num_classes": 7, "pretrained_cfg": {"input_size": [3, 32, 32],
           "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5], "interpolation": "bilinear", "crop_pct": 0.9}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(cfg))
    model = build_model(f"local-dir:{tmp_path}", 4)
    assert (model.num_classes, model.input_size) == (4, (32, 32))
    kept = model.network.architecture
    (tmp_path / "config.json").unlink()
    again = build_model(f"local-dir:{tmp_path}", 4, architecture=json.loads(json.dumps(kept)))  # as a run keeps it
    assert tuple(again.network.pretrained_cfg["mean"]) == (0.1, 0.2, 0.3)  # type: ignore[index]
    with pytest.raises(ModelError, match="has no config of timm"):
        build_model(f"local-dir:{tmp_path}/none", 4)


def test_a_classifier_of_transformers_comes_out_of_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                                    image_size=32, patch_size=8, num_labels=3)  # fmt: skip
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    model = build_model(f"hf:{tmp_path}", 3, pretrained=True).eval()
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(x)[0], theirs(x).logits)
    assert model.network.pretrained_cfg["crop_mode"] == "squash"  # type: ignore[index]
