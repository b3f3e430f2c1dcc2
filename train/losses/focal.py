"""Focal loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import take
from calibrant.train.losses.shared.target import Labels


def surprise(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """CE_i = -log p_y and 1 - p_y, (N,) each, to full relative accuracy for sure rows.

    With d = logsumexp_{k != y} z_k - z_y: CE = softplus(d), 1 - p_y = sigmoid(d). From log_softmax a float32 CE of 1e-4
    has only three digits, and (1 - p)^5 loses them all.
    """
    others = z.scatter(1, y[:, None], -torch.inf).logsumexp(1)
    d = others - take(z, y)
    return F.softplus(d, threshold=40), d.sigmoid()


def probability_loss(z: Tensor, target: Labels, term: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Row losses term(CE, 1 - p_y), convex over soft targets. term is elementwise."""
    if target.dense is None and z.shape[1] > 1:
        return target.convex(lambda z, y: term(*surprise(z, y)), z)
    return target.elementwise(lambda log_p: term(-log_p, -torch.expm1(log_p)), z.log_softmax(1))


def focal_term(ce: Tensor, miss: Tensor, gamma: float | Tensor) -> Tensor:
    """(1 - p)^gamma CE. For gamma < 1 the power has an infinite slope at p = 1, so 1 - p is held above 1e-8 there."""
    if isinstance(gamma, Tensor):
        miss = torch.where(gamma < 1, miss.clamp(min=1e-8), miss)
    elif gamma < 1:
        miss = miss.clamp(min=1e-8)
    return miss.pow(gamma) * ce


class Focal(Loss):
    """L_i = (1 - p_y)^gamma CE_i (Lin et al. 2017; Mukhoti et al. 2020 use gamma = 3 for calibration).

    Differs: the authors' code sums over rows by default; here the default is the mean, as everywhere.
    """

    def __init__(self, num_classes: int, *, gamma: float = 3.0, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.gamma = in_range(gamma, 0, float("inf"), "gamma")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        return probability_loss(z, target, lambda ce, miss: focal_term(ce, miss, self.gamma))
