"""The main loss of a head: which one, its target, and the mean over weighted or over the hardest rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibrant.errors import ConfigError
from calibrant.settings.heads import HeadConfig, HeadLossConfig
from calibrant.train.losses import LOSSES, Loss, create_loss


def make_loss(config: HeadConfig, classes: int, hidden: int, counts: Tensor) -> Loss:
    """The loss of the configuration; arcface heads bring theirs."""
    c = config.loss
    options = dict(c.options)
    name = c.name
    if config.head.kind == "arcface":
        if name not in ("ce", "arcface") or options:
            raise ConfigError(
                f'an arcface head has its own loss, not "{name}"', where="loss", fix="set head.margin and head.scale"
            )
        name, options = "arcface", {"margin": config.head.margin, "scale": config.head.scale}
    if name == "vace" and (config.augment.mixup or c.label_smoothing):
        raise ConfigError(
            "vace measures the scatter of unmixed classes", where="loss.name", fix="leave mixup and label_smoothing out"
        )
    if c.class_weights != "none" or c.hard_share < 1:
        options["reduction"] = "none"
    loss = create_loss(name, num_classes=classes, feature_dim=hidden, class_counts=counts, **options)
    if not loss.trains_classifier:
        raise ConfigError(
            f'"{name}" says nothing about logits', where="loss.name", fix=f'use auxiliary.name = "{name}"'
        )
    return loss


def wants_cosines(config: HeadConfig) -> bool:
    """The last layer must give cosines."""
    name = "arcface" if config.head.kind == "arcface" else config.loss.name
    return name in LOSSES and LOSSES[name].needs_cosines


def smoothed_target(y: Tensor, other: Tensor, lam: float | Tensor, classes: int, smoothing: float) -> Tensor:
    """Hard labels where nothing softens them, else probabilities (B, C). lam: of all rows, or (B,)."""
    if isinstance(lam, float) and lam == 1.0 and not smoothing:
        return y
    share = torch.as_tensor(lam, dtype=torch.float32, device=y.device).expand(len(y))[:, None]
    mass = torch.full((len(y), classes), smoothing / classes, device=y.device)
    mass.scatter_add_(1, y[:, None], (1 - smoothing) * share)
    mass.scatter_add_(1, other[:, None], (1 - smoothing) * (1 - share))
    return mass


def reduced(value: Tensor, target: Tensor, weights: Tensor | None, config: HeadLossConfig, progress: float) -> Tensor:
    """The mean of row losses `value`, weighted by class, of the hardest rows; each from its share of the epochs on."""
    w = torch.ones_like(value)
    if weights is not None and progress >= config.weights_from:
        by_class = weights.to(value)
        w = target.to(by_class.dtype) @ by_class if target.is_floating_point() else by_class[target]
    if config.hard_share < 1 and progress >= config.hard_from:
        kept = value.detach().topk(math.ceil(config.hard_share * len(value))).indices
        value, w = value[kept], w[kept]
    mean: Tensor = (w * value).sum() / w.sum()
    return mean
