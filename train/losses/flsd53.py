"""FLSD-53: focal loss whose gamma follows the probability of the true class."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from calibrant.train.losses.focal import focal_term, probability_loss
from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels


class FLSD53(Loss):
    """Focal loss with gamma 5 where p_y < .2, 3 where .2 <= p_y < .5 and `gamma` above (Mukhoti et al. 2020).

    gamma is not differentiated. Differs: mean by default, the authors' code sums.
    """

    def __init__(self, num_classes: int, *, gamma: float = 3.0, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.gamma = in_range(gamma, 0, float("inf"), "gamma")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        def term(ce: Tensor, miss: Tensor) -> Tensor:
            p = (-ce.detach()).exp()
            gamma = torch.full_like(p, self.gamma).masked_fill_(p < 0.5, 3.0).masked_fill_(p < 0.2, 5.0)
            return focal_term(ce, miss, gamma)

        return probability_loss(z, target, term)
