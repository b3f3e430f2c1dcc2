"""Dual focal loss."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from calibrant.train.losses.focal import focal_term, surprise
from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import take
from calibrant.train.losses.shared.target import Labels


class DualFocal(Loss):
    """L_i = (1 - p_y + p_j)^gamma CE_i, p_j the largest probability strictly below p_y, else 0.

    Tao et al. 2023. gamma is to be tuned in 1..5.
    """

    def __init__(self, num_classes: int, *, gamma: float = 5.0, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.gamma = in_range(gamma, 0, float("inf"), "gamma")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        def row(z: Tensor, y: Tensor) -> Tensor:
            if self.num_classes == 1:
                return 0 * z[:, 0]
            p = z.softmax(1)
            runner_up = p.masked_fill(p >= take(p, y)[:, None], 0).max(1).values
            ce, miss = surprise(z, y)
            return focal_term(ce, miss + runner_up, self.gamma)

        return target.convex(row, z)
