"""ArcFace, an additive margin on the angle."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import take
from calibrant.train.losses.shared.target import Labels


class ArcFace(Loss):
    """L_i = CE(s z', y), z'_y = cos(theta_y + m) while theta_y <= pi - m, else cos(theta_y) - m sin m.


    Deng et al. 2019. z = cos(theta) come from a CosineHead. Past pi - m the cosine would rise again, hence the branch.
    margin m in radians (.5 = 28.6 degrees); scale s: 64, or 30 for few classes. Probabilities: softmax(s z), no margin.
    """

    needs_cosines = True

    def __init__(
        self, num_classes: int, *, margin: float = 0.5, scale: float = 64.0, **options: Unpack[BaseOptions]
    ) -> None:
        super().__init__(num_classes, **options)
        self.margin = in_range(margin, 0, math.pi / 2, "margin")
        self.scale = in_range(scale, 0, float("inf"), "scale")

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        m = self.margin

        def row(z: Tensor, y: Tensor) -> Tensor:
            t = take(z, y).clamp(-1 + 1e-7, 1 - 1e-7)  # the angle's slope is infinite at +-1
            turned = t * math.cos(m) - (1 - t.square()).sqrt() * math.sin(m)
            new = torch.where(t >= -math.cos(m), turned, t - m * math.sin(m))
            return -take((self.scale * z.scatter(1, y[:, None], new[:, None])).log_softmax(1), y)

        return target.convex(row, z)

    def adjust_logits(self, z: Tensor) -> Tensor:
        return self.scale * z
