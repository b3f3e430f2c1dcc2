"""A weighted sum of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.train.losses.shared.loss import Loss
from calibrant.train.losses.shared.target import MixedTarget


class Combined(Loss):
    """sum_k w_k L_k: a loss on logits with auxiliary terms, e.g. Combined([(2.0, BalancedSoftmax(...)), (.6, ...)]).

    Gives the predictions of the first part that trains the classifier. All parts get the same call.
    """

    def __init__(self, parts: Sequence[tuple[float, Loss]]) -> None:
        if not parts:
            raise ConfigError("Combined needs at least one loss")
        first = parts[0][1]
        if any(p.num_classes != first.num_classes or p.reduction != first.reduction for _, p in parts):
            raise ConfigError("the parts of Combined differ in num_classes or reduction")
        super().__init__(first.num_classes, reduction=first.reduction)
        self.weights = [float(w) for w, _ in parts]
        self.parts = nn.ModuleList(p for _, p in parts)
        losses = self.losses
        self.needs_features = any(p.needs_features for p in losses)
        self.features_carry_gradient = any(p.features_carry_gradient for p in losses)
        self.needs_indices = any(p.needs_indices for p in losses)
        self.needs_cosines = any(p.needs_cosines for p in losses)
        self.trains_classifier = any(p.trains_classifier for p in losses)

    @property
    def losses(self) -> list[Loss]:
        return [cast(Loss, p) for p in self.parts]

    def forward(
        self,
        logits: Tensor,
        target: Tensor | MixedTarget,
        features: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> Tensor:
        terms = [w * p(logits, target, features, indices) for w, p in zip(self.weights, self.losses, strict=True)]
        return torch.stack(terms).sum(0)

    @property
    def absorbed_prior_strength(self) -> float:
        return self._main.absorbed_prior_strength

    def adjust_logits(self, z: Tensor) -> Tensor:
        return self._main.adjust_logits(z)

    def class_temperatures(self) -> Tensor | None:
        return self._main.class_temperatures()

    def diagnostics(self) -> dict[str, float | list[float]]:
        return {f"{i}.{name}": v for i, p in enumerate(self.losses) for name, v in p.diagnostics().items()}

    def on_epoch_start(self, epoch: int, total_epochs: int) -> None:
        for p in self.losses:
            p.on_epoch_start(epoch, total_epochs)

    def on_validation(self, probs: Tensor, labels: Tensor) -> None:
        for p in self.losses:
            p.on_validation(probs, labels)

    def on_epoch_end(self, epoch: int, total_epochs: int) -> None:
        for p in self.losses:
            p.on_epoch_end(epoch, total_epochs)

    @property
    def _main(self) -> Loss:
        return next((p for p in self.losses if p.trains_classifier), self.losses[0])
