"""Explicit confidence penalty."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class ECP(Loss):
    """L_i = CE_i - beta H(p_i), H the entropy (Pereyra et al. 2017)."""

    def __init__(self, num_classes: int, *, beta: float = 0.1, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.beta = in_range(beta, 0, float("inf"), "beta")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        log_p = z.log_softmax(1)
        return cross_entropy_rows(log_p, target) + self.beta * (log_p.exp() * log_p).sum(1)
