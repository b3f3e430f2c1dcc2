"""The network of a configuration, and the evaluation transform that belongs to it."""

from __future__ import annotations

from typing import Literal

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import TrainConfig
from calibrant.train.model.feature_model import FeatureModel, build_model


def build_network(config: TrainConfig, num_classes: int) -> tuple[FeatureModel, Preprocessing]:
    """The network and the evaluation transform that its pretrained configuration asks for."""
    m = config.model
    size = None if m.image_size is None else (m.image_size, m.image_size)
    network = build_model(
        m.name, num_classes, pretrained=m.pretrained, weights=m.weights, input_size=size,
        token_reduction=m.token_reduction, small_stem=m.small_stem, **m.options,
    )  # fmt: skip
    if m.freeze == "backbone":
        freeze_backbone(network)
    return network, resolve_preprocessing(network, crop_pct=m.crop_pct, normalise=m.normalise)


def freeze_backbone(network: FeatureModel) -> None:
    """Leave only the classifier to learn; FeatureModel.train() keeps the rest in eval mode, batch statistics too."""
    for p in network.network.parameters():
        p.requires_grad_(False)
    for layer in network.classifier_layers():
        for p in layer.parameters():
            p.requires_grad_(True)
    network.frozen = True


def resolve_preprocessing(
    network: FeatureModel, *, crop_pct: float | None = None, normalise: Literal["model", "imagenet"] = "model"
) -> Preprocessing:
    """timm's data configuration for the model at its input size.

    Differs: images of up to 96 px are not cropped (crop_pct 1): they are small because they have been cropped already.
    """
    from timm.data import resolve_data_config

    height, width = network.input_size
    found = resolve_data_config({"input_size": (3, height, width)}, model=network.network)
    if crop_pct is None:
        crop_pct = 1.0 if max(height, width) <= 96 else float(found["crop_pct"])
    imagenet = Preprocessing((height, width), height)
    mean, std = (imagenet.mean, imagenet.std) if normalise == "imagenet" else (found["mean"], found["std"])
    return Preprocessing(
        (height, width), int(min(height, width) / crop_pct),
        "squash" if found["crop_mode"] == "squash" else "center",
        found["interpolation"] if found["interpolation"] != "random" else "bicubic",
        (mean[0], mean[1], mean[2]), (std[0], std[1], std[2]),
    )  # fmt: skip
