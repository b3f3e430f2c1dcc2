"""Several heads averaged into one: the mean of their logits is the logit of the mean of their last matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.training.modules import Folded, Head, folded, last_linear
from calibrant.train.heads.training.row_views import RowViews
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.heads.training.trainer import train_head
from calibrant.train.losses import create_loss
from calibrant.train.seeds import derive


def train_heads(
    config: HeadConfig,
    features: Tensor,
    labels: Tensor,
    classes: int,
    *,
    copies: int = 1,
    views: RowViews | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    on_epoch: Callable[[int, float], None] = lambda epoch, loss: None,
) -> TrainedHead:
    """`train_head`, or the average of `ensemble.heads` of them; the first has the seed of the run."""
    same: dict[str, Any] = {"copies": copies, "views": views, "validation": validation}
    first = train_head(config, features, labels, classes, on_epoch=on_epoch, **same)
    if config.ensemble.heads == 1:
        return first
    if first.class_temperatures() is not None:
        raise ConfigError(
            f"loss {config.loss.name} gives every head class temperatures of its own, which do not average",
            where="ensemble.heads",
            fix="leave it out",
        )
    others = [
        train_head(
            replace(config, seed=derive(config.seed, "ensemble", i)),
            features,
            labels,
            classes,
            **same,
        )
        for i in range(1, config.ensemble.heads)
    ]
    return average([first, *others])


@torch.no_grad()
def average(heads: list[TrainedHead]) -> TrainedHead:
    """One head whose logits are the mean of theirs. They share the transform and have no body."""
    first = heads[0]
    last = [folded(h.head.classifier, h.scale) for h in heads]
    layers = [last_linear(layer) for layer in last]
    weight = torch.stack([layer.weight for layer in layers]).mean(0)
    bias = torch.stack([layer.bias for layer in layers]).mean(0)
    classifier: nn.Module
    if isinstance(last[0], Folded):
        classifier = Folded(weight, bias)
    else:
        classifier = nn.Linear(weight.shape[1], weight.shape[0])
        classifier.weight.copy_(weight)
        classifier.bias.copy_(bias)
    whole = Head(first.head.transform, first.head.body, classifier.to(weight.device), hidden=first.head.hidden)
    history = [sum(values) / len(heads) for values in zip(*(h.history for h in heads), strict=True)]
    # The scale that a loss on cosines brings lies in the matrix now.
    loss = first.loss if first.scale == 1.0 else create_loss("ce", num_classes=len(weight))
    return TrainedHead(whole.requires_grad_(False).eval(), loss, first.corrections, history)
