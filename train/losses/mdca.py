"""MDCA, the difference between confidence and accuracy of every class in the batch."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from calibrant.train.losses.focal import focal_term, probability_loss
from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class MDCA(Loss):
    """CE + beta (1/C) sum_c |mean_i p_ic - mean_i [y_i = c]| (Hebbalaguppe et al. 2022).

    gamma > 0 puts focal loss in the place of CE. beta is tuned in 1..25. For soft targets [y_i = c] becomes q_ic.

    In reduction "none" every row carries the whole term.
    """

    def __init__(
        self, num_classes: int, *, beta: float = 1.0, gamma: float = 0.0, **options: Unpack[BaseOptions]
    ) -> None:
        super().__init__(num_classes, **options)
        self.beta = in_range(beta, 0, float("inf"), "beta")
        self.gamma = in_range(gamma, 0, float("inf"), "gamma")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        log_p = z.log_softmax(1)
        if self.gamma > 0:
            base = probability_loss(z, target, lambda ce, miss: focal_term(ce, miss, self.gamma))
        else:
            base = cross_entropy_rows(log_p, target)
        gap = log_p.exp().mean(0) - target.mass(self.num_classes, z.dtype).mean(0)
        return base + self.beta * gap.abs().mean()
