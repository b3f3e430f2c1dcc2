"""Center loss."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor

from calibrant.errors import ConfigError
from calibrant.train.losses.shared.checks import at_least, in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels


class Center(Loss):
    """.5 ||f_i - c_{y_i}||^2 (Wen et al. 2016). An auxiliary term of weight .003 to .01 (Combined).

    After each training step the centers of the classes present move, without any optimizer:
    published  c <- c - rate * sum_i (c - f_i) / (1 + n), n rows of the class, rate .5
    ema        c <- (1 - rate) c + rate * mean of its rows
    A class is set to the mean of its rows when it is first seen. Rows of two classes move nothing.
    State: centers (C, D), seen (C,).
    """

    needs_features = True
    features_carry_gradient = True
    trains_classifier = False
    centers: Tensor
    seen: Tensor

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        *,
        rate: float = 0.5,
        rule: Literal["published", "ema"] = "published",
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        if rule not in ("published", "ema"):
            raise ConfigError(f"rule {rule!r} is not published or ema")
        self.rate, self.rule = in_range(rate, 0, 1, "rate"), rule
        self.register_buffer("centers", torch.zeros(num_classes, at_least(feature_dim, 1, "feature_dim")))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        assert features is not None  # checked by the base class
        if self.training:
            if features.dtype == torch.float64:
                self.centers = self.centers.double()
            self._start(features.detach(), target)
        centers = self.centers.to(features.dtype)
        value = target.convex(lambda f, y: 0.5 * (f - centers[y]).square().sum(1), features)
        if self.training:
            self._move(features.detach(), target)
        return value

    @torch.no_grad()
    def _means(self, f: Tensor, target: Labels) -> tuple[Tensor, Tensor, Tensor]:
        """Classes present, mean of their finite rows, number of rows."""
        index, y = target.pure()
        f = f[index].to(self.centers.dtype)
        finite = f.sum(1).isfinite()
        classes, position, n = torch.unique(y[finite], return_inverse=True, return_counts=True)
        rows = n.to(f.dtype)[:, None]
        return classes, f.new_zeros(len(classes), f.shape[1]).index_add_(0, position, f[finite]) / rows, rows

    @torch.no_grad()
    def _start(self, f: Tensor, target: Labels) -> None:
        classes, mean, _ = self._means(f, target)
        new = ~self.seen[classes]
        self.centers[classes[new]] = mean[new]
        self.seen[classes] = True

    @torch.no_grad()
    def _move(self, f: Tensor, target: Labels) -> None:
        classes, mean, n = self._means(f, target)
        share = self.rate if self.rule == "ema" else self.rate * n / (1 + n)
        self.centers[classes] += share * (mean - self.centers[classes])
