"""Supervised contrastive losses on features."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.errors import ConfigError
from calibrant.train.losses.base import BaseOptions, Labels, Loss, at_least


def _single_class(target: Labels, name: str) -> Tensor:
    if target.hard is None:
        raise ValueError(f"{name} contrasts classes and needs hard labels, not mixed ones")
    return target.hard


def _temperature(value: float) -> float:
    if not value > 0:
        raise ConfigError(f"temperature is {value}, but must be positive")
    return float(value)


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
        self.temperature = _temperature(temperature)

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        assert features is not None  # checked by the base class
        y = _single_class(target, "supcon")
        same = y[:, None] == y[None, :]
        self_pair = torch.eye(len(y), dtype=torch.bool, device=y.device)
        positive = same & ~self_pair
        if not bool(positive.any()) or bool(same.all()):
            return 0 * features.sum(1)
        f = F.normalize(features, dim=1)
        s = (f @ f.T / self.temperature).masked_fill(self_pair, -torch.inf)
        log_share = s - s.logsumexp(1, keepdim=True)
        pairs = positive.sum(1)
        total = torch.where(positive, log_share, 0).sum(1)
        return -total / pairs.clamp(min=1)

    def reduce(self, rows: Tensor, target: Labels) -> Tensor:
        if self.reduction == "sum":
            return rows.sum()
        return rows.sum() / (rows.detach() > 0).sum().clamp(min=1)


class BalancedContrastive(Loss):
    """-(1/|P_i|) sum_{p in P_i} [s_ip - log sum_c (1/m_c) sum_{j in c, j != i} exp s_ij] (Zhu et al. 2022, BCL).

    The contrast set is the batch and one learned prototype per class (class complement); m_c counts the members of c in
    it, less the anchor in its own class; P_i: members of the class of i without i. s_ij = cos / T. Single view.
    The authors add it with weight .6 to 2 x logit-adjusted cross-entropy (Combined).
    """

    needs_features = True
    features_carry_gradient = True
    trains_classifier = False

    def __init__(
        self, num_classes: int, feature_dim: int, *, temperature: float = 0.1, **options: Unpack[BaseOptions]
    ) -> None:
        super().__init__(num_classes, **options)
        self.temperature = _temperature(temperature)
        self.prototypes = nn.Parameter(torch.randn(num_classes, at_least(feature_dim, 1, "feature_dim")))

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        assert features is not None  # checked by the base class
        y = _single_class(target, "balanced-contrastive")
        n, classes = len(y), torch.arange(self.num_classes, device=y.device)
        f = F.normalize(features, dim=1)
        members = torch.cat([f, F.normalize(self.prototypes.to(f.dtype), dim=1)])
        label = torch.cat([y, classes])
        own = torch.eye(n, len(label), dtype=torch.bool, device=y.device)
        s = (f @ members.T / self.temperature).masked_fill(own, -torch.inf)
        positive = (y[:, None] == label[None, :]) & ~own
        count = torch.bincount(label, minlength=self.num_classes)[label][None, :] - positive_of(y, label)
        log_denominator = (s - count.to(s.dtype).log()).logsumexp(1, keepdim=True)
        return -torch.where(positive, s - log_denominator, 0).sum(1) / positive.sum(1)


def positive_of(y: Tensor, label: Tensor) -> Tensor:
    """(n, n + C): 1 where the member has the anchor's class, so that the anchor does not count itself."""
    return (y[:, None] == label[None, :]).long()
