"""A head without its backbone: rows of features in, logits out. What `export --head-only` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from calibrant.settings.heads import HeadKind
from calibrant.train.heads.fused import deployed_head, head_block, skeleton
from calibrant.train.heads.training.modules import Head, last_linear
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.model.feature_model import FeatureModel

HEAD_MODEL = "head.safetensors"


class HeadAlone(FeatureModel):
    """forward(features (N, D)) -> (logits (N, C), what the last matrix reads (N, H))."""

    def __init__(self, head: Head, width: int) -> None:
        nn.Module.__init__(self)
        self.network, self.input_size = head, (1, width)
        self.recipe = "head on frozen features"
        self.feature_dim, self.num_classes = head.hidden, last_linear(head.classifier).out_features

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        logits, hidden = self.network(x)
        return logits, hidden

    def classifier_layers(self) -> tuple[nn.Module, ...]:
        return (last_linear(self.network.classifier),)  # type: ignore[arg-type]


def alone(trained: TrainedHead, config: HeadKind) -> tuple[HeadAlone, dict[str, Any]]:
    """The network, and the block from which `rebuild_alone` makes its skeleton again."""
    head = deployed_head(trained)
    width = len(head.transform.mean)
    return HeadAlone(head, width).eval(), {"width": width, **head_block(head, config)}


def rebuild_alone(block: Mapping[str, Any], num_classes: int) -> HeadAlone:
    """The skeleton of a head, with weights still to be loaded."""
    width = int(block["width"])
    return HeadAlone(skeleton(block, width, num_classes), width).eval()
