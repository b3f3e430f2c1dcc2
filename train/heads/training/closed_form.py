"""Heads that are solved: logistic regression, nearest class mean, linear discriminant. No steps, no schedule."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.training.balance import class_weights, corrections_of, strength_of, with_smote
from calibrant.train.heads.training.head_loss import make_loss
from calibrant.train.heads.training.modules import Folded, Head, Transform
from calibrant.train.heads.training.solve import discriminant, logistic, nearest_mean
from calibrant.train.heads.training.trained import TrainedHead
from calibrant.train.losses import Loss, log_prior


def solve(config: HeadConfig, transform: Transform, x: Tensor, y: Tensor, counts: Tensor, copies: int) -> TrainedHead:
    """Logistic regression, nearest mean and discriminant: no steps, no randomness but SMOTE's."""
    head, classes = config.head, len(counts)
    corrections: dict[str, float] = {}
    x, y, filled = with_smote(config, x, y, counts)
    corrections.update(filled)
    loss: Loss | None = None
    classifier: nn.Module
    if head.kind == "logistic":
        loss = make_loss(config, classes, x.shape[1], counts)
        smoothing = config.loss.label_smoothing
        mass = nn.functional.one_hot(y, classes).to(x) * (1 - smoothing) + smoothing / classes
        weights = class_weights(config, counts)
        offset = None
        if config.loss.name == "balanced-softmax":
            offset = loss.absorbed_prior_strength * log_prior(counts, classes)
        weight, bias = logistic(
            x, mass, l2=head.l2, row_weights=None if weights is None else weights.to(x)[y], offset=offset
        )
        classifier = _linear(weight, bias)
        in_force = {"loss": loss.absorbed_prior_strength, "class weights": strength_of(weights, counts)}
        corrections |= corrections_of(in_force)
    elif head.kind == "ncm":
        cosine = head.metric == "cosine"
        weight, found = nearest_mean(x, y, classes, prior_rows=head.prior_rows, cosine=cosine)
        classifier = Folded(head.scale * weight) if found is None else _linear(weight, found)
        corrections["equal class priors"] = 1.0
    else:
        classifier = _linear(
            *discriminant(
                x, y, classes, prior_rows=head.prior_rows, shrinkage=head.shrinkage, between=head.between, copies=copies
            )
        )
        corrections["equal class priors"] = 1.0
    whole = Head(transform, nn.Identity(), classifier, hidden=x.shape[1])
    return TrainedHead(whole.requires_grad_(False).eval(), loss, corrections)


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0]).to(weight.device)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer
