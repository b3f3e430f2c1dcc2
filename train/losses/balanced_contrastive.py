"""Balanced contrastive loss: every class weighs alike in the contrast set, and each has a prototype in it."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.train.losses.shared.checks import at_least, positive
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, single_class


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
        self.temperature = positive(temperature, "temperature")
        self.prototypes = nn.Parameter(torch.randn(num_classes, at_least(feature_dim, 1, "feature_dim")))

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        assert features is not None  # checked by the base class
        y = single_class(target, "balanced-contrastive")
        n, classes = len(y), torch.arange(self.num_classes, device=y.device)
        f = F.normalize(features, dim=1)
        members = torch.cat([f, F.normalize(self.prototypes.to(f.dtype), dim=1)])
        label = torch.cat([y, classes])
        own = torch.eye(n, len(label), dtype=torch.bool, device=y.device)
        s = (f @ members.T / self.temperature).masked_fill(own, -torch.inf)
        same = y[:, None] == label[None, :]
        pairs = same & ~own
        count = torch.bincount(label, minlength=self.num_classes)[label][None, :] - same.long()  # less the anchor
        log_denominator = (s - count.to(s.dtype).log()).logsumexp(1, keepdim=True)
        return -torch.where(pairs, s - log_denominator, 0).sum(1) / pairs.sum(1)
