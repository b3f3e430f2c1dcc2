"""LDAM, the label-distribution-aware margin, with deferred re-weighting."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor

from calibrant.errors import ConfigError
from calibrant.train.losses.prior import as_counts, effective_number_weights, weight_strength
from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.rows import take
from calibrant.train.losses.shared.target import Labels

log = logging.getLogger(__name__)


class LDAM(Loss):
    """L_i = CE(s z', y), z'_y = z_y - margin_y, margin_c = max_m n_c^(-1/4) / max_k n_k^(-1/4) (Cao et al. 2019).

    z are cosines: give the model a CosineHead. Probabilities are softmax(s z), without margin.
    DRW: from the share `drw_start` of the epochs on (told by on_epoch_start) rows carry effective-number class weights
    (beta), and the mean divides by the sum of row weights. drw_start=0: from the first step; drw=False: never.
    absorbed_prior_strength counts these weights only: a margin moves no prior.
    """

    needs_cosines = True
    margins: Tensor
    weights: Tensor

    def __init__(
        self,
        num_classes: int,
        class_counts: Sequence[int] | Tensor,
        *,
        max_margin: float = 0.5,
        scale: float = 30.0,
        drw: bool = True,
        drw_start: float = 0.8,
        beta: float = 0.9999,
        **options: Unpack[BaseOptions],
    ) -> None:
        super().__init__(num_classes, **options)
        counts = as_counts(class_counts, num_classes)
        if float(counts.min()) == 0:
            raise ConfigError(
                f"ldam: class {int(counts.argmin())} has no image, its margin is infinite",
                fix="leave the class out, or use balanced-softmax",
            )
        self.max_margin = in_range(max_margin, 0, float("inf"), "max_margin")
        self.scale = in_range(scale, 0, float("inf"), "scale")
        self.drw, self.drw_start, self.beta = drw, in_range(drw_start, 0, 1, "drw_start"), beta
        self.counts = counts
        margin = counts.pow(-0.25)
        self.register_buffer("margins", self.max_margin * margin / margin.max())
        self.register_buffer("weights", torch.ones(num_classes, dtype=torch.float64))
        self._told = False
        if drw and drw_start == 0:
            self.on_epoch_start(0, 1)

    def on_epoch_start(self, epoch: int, total_epochs: int) -> None:
        super().on_epoch_start(epoch, total_epochs)
        if self.drw and epoch >= self.drw_start * total_epochs:
            self.weights.copy_(effective_number_weights(self.counts, beta=self.beta))
        else:
            self.weights.fill_(1)

    @property
    def absorbed_prior_strength(self) -> float:
        return weight_strength(self.weights.cpu(), self.counts)

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        if not self._told and float(z.detach().abs().max()) > 1.001:
            self._told = True
            log.warning("ldam got logits beyond [-1, 1]; it is meant for cosines (calibrant.train.losses.CosineHead)")
        margins, weights = self.margins.to(z), self.weights.to(z)

        def weighted(z: Tensor, y: Tensor) -> Tensor:
            reduced = z.scatter_add(1, y[:, None], -margins[y][:, None])
            return -weights[y] * take((self.scale * reduced).log_softmax(1), y)

        return target.convex(weighted, z)

    def reduce(self, rows: Tensor, target: Labels) -> Tensor:
        if self.reduction == "sum":
            return rows.sum()
        return rows.sum() / target.elementwise(lambda w: w, self.weights.to(rows).expand(len(rows), -1)).sum()

    def adjust_logits(self, z: Tensor) -> Tensor:
        return self.scale * z
