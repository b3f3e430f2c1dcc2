"""The network of a configuration, and the evaluation transform that belongs to it."""

from __future__ import annotations

from typing import Any

from torch import nn

from calibrant.errors import ModelError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.config import ModelConfig, TrainConfig, sides
from calibrant.train.model.evaluation_transform import evaluation_transform
from calibrant.train.model.feature_model import FeatureModel, build_model


def build_network(config: TrainConfig, num_classes: int) -> tuple[FeatureModel, Preprocessing]:
    """The network and the evaluation transform that its pretrained configuration asks for."""
    m = config.model
    network = build_model(
        m.name,
        num_classes,
        pretrained=m.pretrained is True,
        weights=m.weights,
        input_size=sides(m.image_size),
        token_reduction=m.token_reduction,
        small_stem=m.small_stem,
        **options_of(m),
    )
    if m.freeze == "backbone":
        freeze_backbone(network)
    if m.train_last is not None:
        train_last(network, m.train_last)
    if config.engine.grad_checkpointing:
        _recompute(network, m.name)
    return network, evaluation_transform(network, crop_pct=m.crop_pct, normalise=m.normalise, small_stem=m.small_stem)


def options_of(model: ModelConfig) -> dict[str, Any]:
    """What the constructor is told, and a run writes down to build the network again."""
    return {**({} if model.in_chans == 3 else {"in_chans": model.in_chans}), **model.options}


def freeze_backbone(network: FeatureModel) -> None:
    """Leave only the classifier to learn; FeatureModel.train() keeps the rest in eval mode, batch statistics too."""
    for p in network.network.parameters():
        p.requires_grad_(False)
    for layer in network.classifier_layers():
        for p in layer.parameters():
            p.requires_grad_(True)
    network.frozen = True


def zero_head(network: FeatureModel) -> None:
    """Every class equally likely at the start: loss ln C, where timm's initial classifier of a pretrained network
    begins at several times that.
    """
    for layer in network.classifier_layers():
        for p in layer.parameters():
            nn.init.zeros_(p)


def train_last(network: FeatureModel, stages: int) -> None:
    """Only the last `stages` groups of layers learn, as timm orders them, and the classifier."""
    from timm.models import group_parameters

    bare = network.network
    if not hasattr(bare, "group_matcher"):
        raise ModelError(f"{type(bare).__name__} has no order of layers", where="model.train_last", fix="leave it out")
    order = group_parameters(bare, bare.group_matcher(coarse=True), reverse=True)  # type: ignore[operator]
    classifier = {id(p) for layer in network.classifier_layers() for p in layer.parameters()}
    named = dict(bare.named_parameters())
    places = sorted({place for name, place in order.items() if id(named[name]) not in classifier})
    if len(places) > 1 and places[-1] == max(order.values()):
        places = places[:-1]  # a norm that stands with the classifier is no stage of its own
    for name, place in order.items():
        learns = place >= places[-min(stages, len(places))] or id(named[name]) in classifier
        named[name].requires_grad_(learns)


def _recompute(network: FeatureModel, name: str) -> None:
    if not hasattr(network.network, "set_grad_checkpointing"):
        raise ModelError(f"{name} cannot recompute its activations", where="engine.grad_checkpointing")
    try:
        network.network.set_grad_checkpointing(True)  # type: ignore[operator]
    except (AssertionError, NotImplementedError):
        raise ModelError(f"{name} cannot recompute its activations", where="engine.grad_checkpointing") from None
