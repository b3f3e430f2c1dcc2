"""CRL: confidence ranked by how often a sample was right so far."""

from __future__ import annotations

import logging
from typing import Unpack

import torch
from torch import Tensor

from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.sample_memory import SampleMemory
from calibrant.train.losses.shared.target import Labels, MixedTarget, cross_entropy_rows

logger = logging.getLogger(__name__)


class CRL(Loss):
    """CE + weight * mean_i max(0, -s_i (r_i - r_j) + |c_i - c_j|), s_i = sign(c_i - c_j), j the next row.

    Moon et al. 2020. r = max_k p_k; c = times the sample was right in training so far / largest such count. Call it
    with `indices=`, the sample numbers; the history is read before it takes in the batch. Without indices there is no
    history and only CE is left (logged once). Rows of mixed targets are ranked but add nothing to the history.
    Differs: the authors' code takes (count - smallest) / (epochs - smallest), whose margins grow with the epochs done
    and are three times smaller on an easy set; ours do not depend on the length of the run.
    State: memory (grows with the data set), peak.
    """

    needs_indices = True
    peak: Tensor

    def __init__(self, num_classes: int, *, weight: float = 1.0, **options: Unpack[BaseOptions]) -> None:
        super().__init__(num_classes, **options)
        self.weight = in_range(weight, 0, float("inf"), "weight")
        self.memory = SampleMemory(torch.int32)
        self.register_buffer("peak", torch.zeros((), dtype=torch.int32))
        self._told = False

    def _check(self, logits: Tensor, target: Tensor | MixedTarget, features: Tensor | None) -> Tensor | None:
        if logits.ndim > 2:
            raise ValueError(f"crl ranks images, so logits must be (B, C), not {tuple(logits.shape)}")
        return super()._check(logits, target, features)

    def rows(self, z: Tensor, target: Labels, features: Tensor | None, indices: Tensor | None) -> Tensor:
        log_p = z.log_softmax(1)
        ce = cross_entropy_rows(log_p, target)
        if indices is None:
            if self.training and not self._told:
                self._told = True
                logger.warning("crl got no sample indices, so only cross-entropy is left: call loss(..., indices=...)")
            return ce
        top, predicted = log_p.max(1)
        self.memory.make_room(indices)
        c = self.memory.values[indices].to(z) / self.peak.clamp(min=1)
        r = top.exp()
        difference = c - c.roll(-1)
        term = (-difference.sign() * (r - r.roll(-1)) + difference.abs()).relu()
        if self.training:
            self._remember(indices, predicted, target)
        return ce + self.weight * term

    @torch.no_grad()
    def _remember(self, indices: Tensor, predicted: Tensor, target: Labels) -> None:
        index, y = target.unmixed()
        seen = indices[index]
        self.memory.values.index_add_(0, seen, (predicted[index] == y).to(self.memory.values.dtype))
        if len(seen):
            self.peak.copy_(torch.maximum(self.peak, self.memory.values[seen].max()))
