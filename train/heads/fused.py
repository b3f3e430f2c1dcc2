"""Backbone, normalisation and head as one network that ends in one matrix: what export and prediction load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.config import build
from calibrant.errors import ConfigError
from calibrant.images.preprocessing import Preprocessing
from calibrant.settings.heads import HeadKind
from calibrant.train.heads.features.backbone import Backbone, load_backbone
from calibrant.train.heads.features.views import IN_GRAPH
from calibrant.train.heads.training.modules import Folded, Head, Transform, folded, last_linear, make_body
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.model.feature_model import FeatureModel


class _FusedTensors(nn.Module):
    """The tensors of a fused network under stable names."""

    def __init__(self, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head


class FusedModel(FeatureModel):
    """forward(images) -> (logits (N, C), what the last matrix reads (N, H)).

    A mirrored view among the test views doubles the backbone's work: both go through as one batch and are averaged,
    their features, or what the last matrix reads of each, which is the mean of their logits.
    """

    def __init__(
        self, backbone: Backbone, head: Head, views: tuple[str, ...] = ("eval",), *, average: str = "features"
    ) -> None:
        nn.Module.__init__(self)
        outside = [v for v in views if v not in IN_GRAPH]
        if outside:
            raise ConfigError(
                f'the view "{outside[0]}" cannot be made inside one graph',
                where="data.test_views",
                fix=f"use {' and '.join(IN_GRAPH)}",
            )
        self.backbone_model, self.views, self.average = backbone, tuple(views), average
        with torch.no_grad():  # timm's own classifier is never used; as it was drawn, no two files would be the same
            for layer in backbone.model.classifier_layers():
                for parameter in layer.parameters():
                    parameter.zero_()
        self.network = _FusedTensors(backbone.model.network, head)
        self.input_size = backbone.model.input_size
        self.recipe = "head on frozen features"
        self.feature_dim, self.num_classes = head.hidden, last_linear(head.classifier).out_features

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        parts = [x.flip(3) if view == "flip" else x for view in self.views]
        if len(parts) == 1:
            features = self.backbone_model(parts[0])
        elif self.average == "logits":
            head: Any = self.network.head
            hidden = head.body(head.transform(self.backbone_model(torch.cat(parts))))
            if isinstance(head.classifier, Folded):
                hidden = nn.functional.normalize(hidden, dim=-1)
            hidden = hidden.reshape(len(parts), x.shape[0], -1).mean(0)
            return last_linear(head.classifier)(hidden), hidden
        else:
            features = self.backbone_model(torch.cat(parts)).reshape(len(parts), x.shape[0], -1)
            features = features.mean(0)
            if self.backbone_model.tokens > 1:
                features = features.reshape(x.shape[0], -1, self.backbone_model.width)
        logits, hidden = self.network.head(features)  # type: ignore[operator]
        return logits, hidden

    def classifier_layers(self) -> tuple[nn.Module, ...]:
        return (last_linear(self.network.head.classifier),)  # type: ignore[union-attr,arg-type]


def fuse(
    backbone: Backbone, trained: TrainedHead, config: HeadKind, views: tuple[str, ...], average: str = "features"
) -> tuple[FusedModel, dict[str, Any]]:
    """The network, and the block from which `rebuild_fused` makes its skeleton again.

    Standardising folds into a linear head, scale and weight norms of a cosine head into its matrix.
    """
    head = deployed_head(trained)
    model = FusedModel(backbone, head, views, average=average)
    block: dict[str, Any] = {"pooling": backbone.pooling, "views": list(views), **head_block(head, config)}
    if average != "features":
        block["average"] = average
    if backbone.layers > 1:
        block["layers"] = backbone.layers
    return model.eval(), block


def rebuild_fused(model: Mapping[str, Any], num_classes: int, preprocessing: Preprocessing) -> FusedModel:
    """The skeleton of a fused network, with weights still to be loaded."""
    block = model["head"]
    backbone = load_backbone(
        str(model["name"]),
        pooling=block["pooling"],
        pretrained=False,
        input_size=preprocessing.size,
        options=model["options"],
        layers=int(block.get("layers", 1)),
    )
    head = skeleton(block, backbone.width, num_classes)
    return FusedModel(backbone, head, tuple(block["views"]), average=block.get("average", "features")).eval()


def head_block(head: Head, config: HeadKind) -> dict[str, Any]:
    """What `skeleton` makes the head from again."""
    return {
        "power": head.transform.power, "unit": head.transform.unit,
        "cosine": isinstance(head.classifier, Folded),
        "body": {} if isinstance(head.body, nn.Identity) else _plain(config),
    }  # fmt: skip


def skeleton(block: Mapping[str, Any], width: int, num_classes: int) -> Head:
    """A head with weights still to be loaded."""
    body: nn.Module = nn.Identity()
    hidden = width
    if block["body"]:
        body, hidden = make_body(build(HeadKind, block["body"], where="model.head.body"), width)
    classifier: nn.Module = nn.Linear(hidden, num_classes)
    if block["cosine"]:
        classifier = Folded(torch.zeros(num_classes, hidden))
    transform = Transform(width, power=float(block["power"]), unit=bool(block["unit"]))
    return Head(transform, body, classifier, hidden=hidden)


def deployed_head(trained: TrainedHead) -> Head:
    """The head as it is deployed: what is linear in one matrix."""
    head = trained.head
    with torch.no_grad():
        classifier = folded(head.classifier, trained.scale)
        old = head.transform
        transform = Transform(len(old.mean), power=old.power, unit=old.unit)
        transform.load_state_dict(old.state_dict())
        if isinstance(head.body, nn.Identity) and isinstance(classifier, nn.Linear) and not old.unit:
            # W ((f - mean) scale) + b = (W scale) f + (b - (W scale) mean), in float64 and rounded once.
            weight = classifier.weight.double() * old.scale.double()
            bias = classifier.bias.double() - weight @ old.mean.double()
            merged = nn.Linear(classifier.in_features, classifier.out_features)
            merged.weight.copy_(weight)
            merged.bias.copy_(bias)
            classifier = merged
            transform.mean.zero_()
            transform.scale.fill_(1.0)
    return Head(transform, head.body, classifier, hidden=head.hidden).requires_grad_(False).cpu()


def _plain(config: HeadKind) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(config).items()}
