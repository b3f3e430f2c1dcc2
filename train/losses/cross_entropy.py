"""Cross-entropy."""

from __future__ import annotations

from torch import Tensor

from calibrant.train.losses.shared.loss import Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class CrossEntropy(Loss):
    """L_i = -log p_y, p = softmax(z); for soft targets q: -sum_k q_k log p_k."""

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        return cross_entropy_rows(z.log_softmax(1), target)
