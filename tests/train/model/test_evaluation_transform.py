"""One network sees one picture, whoever asks, and it is the one that timm would show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from timm.data import create_transform, resolve_data_config

from calibrant.errors import ConfigError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import train_config
from calibrant.train.heads.features.backbone import load_backbone
from calibrant.train.model.evaluation_transform import evaluation_transform
from calibrant.train.model.network import build_network

BACKBONES = ["test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_byobnet"]


def trained(name: str, size: int | None, **settings: Any) -> Preprocessing:
    model = {"name": name, "image_size": size, **settings}
    config = train_config({"model": model}, [], where=Path("test"))
    return build_network(config, 3)[1]


@pytest.mark.parametrize("size", [32, 64, 96, 128, 224])
@pytest.mark.parametrize("name", BACKBONES)
def test_a_frozen_backbone_sees_in_training_what_features_are_made_from(name: str, size: int) -> None:
    backbone = load_backbone(name, pretrained=False, input_size=(size, size))
    assert trained(name, size, freeze="backbone") == evaluation_transform(backbone.model)


@pytest.mark.parametrize("size", [32, 64, 160, 288])
@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "resnet18", "efficientnet_lite0"])
def test_it_is_timms_own_evaluation(name: str, size: int) -> None:
    backbone = load_backbone(name, pretrained=False, input_size=(size, size))
    found = evaluation_transform(backbone.model)
    config = resolve_data_config({"input_size": (3, size, size)}, model=backbone.model.network)
    resize, crop, _, normalise = create_transform(**config).transforms
    assert (found.resize, found.size) == (resize.size, tuple(crop.size))
    assert found.interpolation == str(resize.interpolation.value)
    assert (list(found.mean), list(found.std)) == (
        pytest.approx(normalise.mean.tolist()), pytest.approx(normalise.std.tolist())
    )  # fmt: skip


def test_test_resnet_at_64_pixels_resizes_to_67() -> None:
    assert trained("test_resnet", 64).resize == 67  # floor(64 / .95)


def test_a_stem_for_small_pictures_sees_all_of_them() -> None:
    assert trained("resnet18", 32, small_stem=True).resize == 32
    assert trained("resnet18", 32, small_stem=True, crop_pct=0.5).resize == 64
    assert trained("resnet18", 32).resize == 33  # floor(32 / .95)


def test_the_crop_and_the_normalisation_can_be_asked_for() -> None:
    network = load_backbone("test_vit", pretrained=False, input_size=(64, 64)).model
    assert evaluation_transform(network, crop_pct=0.5).resize == 128
    assert evaluation_transform(network, normalise="imagenet").mean == (0.485, 0.456, 0.406)
    with pytest.raises(ConfigError, match="crop_pct is 1.5"):
        evaluation_transform(network, crop_pct=1.5)
