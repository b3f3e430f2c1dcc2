"""Label smoothing."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import class_mean
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class LabelSmoothing(Loss):
    """L_i = (1 - alpha) CE_i + alpha E_i, with E_i = -(1/C) sum_k log p_k (Szegedy et al. 2016).

    The uniform mass includes the true class, as in torch's label_smoothing.
    """

    def __init__(self, num_classes: int, *, alpha: float = 0.05, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.alpha = in_range(alpha, 0, 1, "alpha")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        log_p = z.log_softmax(1)
        return (1 - self.alpha) * cross_entropy_rows(log_p, target) - self.alpha * class_mean(log_p)
