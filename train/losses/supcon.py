"""Supervised contrastive loss on features."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.train.losses.shared.checks import positive
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, single_class


class SupCon(Loss):
    """-(1/|P_i|) sum_{p in P_i} [s_ip - logsumexp_{j != i} s_ij], s_ij = cos(f_i, f_j) / T (Khosla et al. 2020).

    P_i: other rows of the class of i. The mean runs over anchors whose loss is positive. A batch without a positive
    pair, or without a negative one, gives 0 (as in pytorch-metric-learning; by the paper one class alone is not 0).
    An auxiliary term: add it to a loss on logits (Combined).
    """

    needs_features = True
    features_carry_gradient = True
    trains_classifier = False

    def __init__(self, num_classes: int, *, temperature: float = 0.1, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.temperature = positive(temperature, "temperature")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        assert features is not None  # checked by the base class
        y = single_class(target, "supcon")
        same = y[:, None] == y[None, :]
        self_pair = torch.eye(len(y), dtype=torch.bool, device=y.device)
        partner = same & ~self_pair
        if not bool(partner.any()) or bool(same.all()):
            return 0 * features.sum(1)
        f = F.normalize(features, dim=1)
        s = (f @ f.T / self.temperature).masked_fill(self_pair, -torch.inf)
        log_share = s - s.logsumexp(1, keepdim=True)
        pairs = partner.sum(1)
        total = torch.where(partner, log_share, 0).sum(1)
        return -total / pairs.clamp(min=1)

    def reduce(self, rows: Tensor, target: Labels) -> Tensor:
        if self.reduction == "sum":
            return rows.sum()
        return rows.sum() / (rows.detach() > 0).sum().clamp(min=1)
