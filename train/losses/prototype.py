"""Classification by distance to learned prototypes."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.errors import ConfigError
from calibrant.train.losses.shared.checks import at_least, positive
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.target import Labels, cross_entropy_rows


class Prototype(Loss):
    """CE over the scores -||f - c_k||^2 / T, or cos(f, c_k) / T (distance="cosine"); prototypes c (C, D) are learned.

    logits(features) gives the scores for prediction. As an auxiliary term it says nothing about the model's own logits.
    """

    needs_features = True
    features_carry_gradient = True
    trains_classifier = False

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        *,
        distance: Literal["euclidean", "cosine"] = "euclidean",
        temperature: float = 1.0,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        if distance not in ("euclidean", "cosine"):
            raise ConfigError(f"distance {distance!r} is not euclidean or cosine")
        self.distance, self.temperature = distance, positive(temperature, "temperature")
        self.prototypes = nn.Parameter(torch.randn(num_classes, at_least(feature_dim, 1, "feature_dim")))

    def logits(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, C)."""
        c = self.prototypes.to(features.dtype)
        if self.distance == "cosine":
            return F.linear(F.normalize(features, dim=1), F.normalize(c, dim=1)) / self.temperature
        squared = features.square().sum(1, keepdim=True) - 2 * features @ c.T + c.square().sum(1)
        return -squared / self.temperature

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        assert features is not None  # checked by the base class
        return cross_entropy_rows(self.logits(features).log_softmax(1), target)
