"""CPC, calibration by pairwise constraints on logits."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import take
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows

_PAIRS_AT_ONCE = 1 << 23


def binary_discrimination(z: Tensor, y: Tensor) -> Tensor:
    """BDC_i = mean over k != y of -logsigmoid(z_y - z_k). (N,)."""
    others = z.shape[1] - 1
    return (F.softplus(z - take(z, y)[:, None]).sum(1) - math.log(2)) / max(others, 1)


def binary_exclusion(z: Tensor, y: Tensor) -> Tensor:
    """BEC_i = mean over ordered pairs j != k, both != y, of -.5 logsigmoid(z_j - z_k). (N,).

    0 for fewer than three classes. Takes O(N C^2) memory; beyond 8M pairs it goes on in pieces, each computed
    again in the backward pass.
    """
    n, c = z.shape
    if c < 3:
        return 0 * z.sum(1)
    keep = torch.ones_like(z, dtype=torch.bool).scatter_(1, y[:, None], False)
    others = z[keep].reshape(n, c - 1)
    step = max(1, _PAIRS_AT_ONCE // (c - 1) ** 2)
    if step >= n:
        return _pair_mean(others)
    parts = torch.split(others, step)
    pieces: list[Tensor] = [checkpoint(_pair_mean, part, use_reentrant=False) for part in parts]
    return torch.cat(pieces)


def _pair_mean(z: Tensor) -> Tensor:
    """(N, K) -> mean over ordered pairs j != k of .5 softplus(z_k - z_j)."""
    k = z.shape[1]
    total = F.softplus(z[:, :, None] - z[:, None, :]).sum((1, 2)) - k * math.log(2)  # the diagonal is softplus(0)
    return 0.5 * total / (k * (k - 1))


class CPC(Loss):
    """CE + l1 BDC + l2 BEC (Cheng and Vasconcelos 2022).

    Differs: a public version keeps the pairs j = k of BEC and so adds the constant .5 log 2 / (C - 2).
    """

    def __init__(self, num_classes: int, *, l1: float = 1.0, l2: float = 1.0, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.l1 = in_range(l1, 0, float("inf"), "l1")
        self.l2 = in_range(l2, 0, float("inf"), "l2")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        def pairs(z: Tensor, y: Tensor) -> Tensor:
            return self.l1 * binary_discrimination(z, y) + self.l2 * binary_exclusion(z, y)

        return cross_entropy_rows(z.log_softmax(1), target) + target.convex(pairs, z)
