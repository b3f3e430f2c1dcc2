"""The network of a configuration, and the evaluation transform that belongs to it."""

from __future__ import annotations

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import TrainConfig
from calibrant.train.model.evaluation_transform import evaluation_transform
from calibrant.train.model.feature_model import FeatureModel, build_model


def build_network(config: TrainConfig, num_classes: int) -> tuple[FeatureModel, Preprocessing]:
    """The network and the evaluation transform that its pretrained configuration asks for."""
    m = config.model
    size = None if m.image_size is None else (m.image_size, m.image_size)
    network = build_model(
        m.name,
        num_classes,
        pretrained=m.pretrained,
        weights=m.weights,
        input_size=size,
        token_reduction=m.token_reduction,
        small_stem=m.small_stem,
        **m.options,
    )
    if m.freeze == "backbone":
        freeze_backbone(network)
    return network, evaluation_transform(network, crop_pct=m.crop_pct, normalise=m.normalise, small_stem=m.small_stem)


def freeze_backbone(network: FeatureModel) -> None:
    """Leave only the classifier to learn; FeatureModel.train() keeps the rest in eval mode, batch statistics too."""
    for p in network.network.parameters():
        p.requires_grad_(False)
    for layer in network.classifier_layers():
        for p in layer.parameters():
            p.requires_grad_(True)
    network.frozen = True
