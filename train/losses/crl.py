"""CRL: confidence ranked by how often a sample was right so far."""

from __future__ import annotations

import logging
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.losses.shared.checks import in_range
from calibrant.train.losses.shared.loss import BaseOptions, Loss
from calibrant.train.losses.shared.sample_memory import SampleMemory
from calibrant.train.losses.shared.target import Labels, MixedTarget, cross_entropy_rows

log = logging.getLogger(__name__)

History = Literal["largest", "epochs"]


class CRL(Loss):
    """CE + weight * mean_i max(0, -s_i (r_i - r_j) + |c_i - c_j|), s_i = sign(c_i - c_j), j the next row.

    Moon et al. 2020. r = max_k p_k; c from how often the sample was right in training so far, by `history`:
    largest: count / largest count (default). epochs: (count - smallest) / (epochs begun - smallest), the authors' code.
    Call it with `indices=`, the sample numbers; the history is read before it takes in the batch. Without indices there
    is no history and only CE is left (logged once). Rows of mixed targets are ranked but add nothing to the history.
    Differs: "largest" is ours. The margins of "epochs" depend on how easy the set is: where every sample is right most
    of the time, a single miss is a large part of what is left.
    State: memory (grows with the data set), peak, samples.
    """

    needs_indices = True
    peak: Tensor
    samples: Tensor

    def __init__(
        self, num_classes: int, *, weight: float = 1.0, history: History = "largest", **options: Unpack[BaseOptions]
    ) -> None:
        super().__init__(num_classes, **options)
        if history not in get_args(History):
            raise ConfigError(f"crl has no history {history!r}", fix=did_you_mean(str(history), get_args(History)))
        self.history: History = history
        self.weight = in_range(weight, 0, float("inf"), "weight")
        self.memory = SampleMemory(torch.int32)
        self.register_buffer("peak", torch.zeros((), dtype=torch.int32))
        self.register_buffer("samples", torch.zeros((), dtype=torch.int64))  # largest index seen, plus one
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
                log.warning("crl got no sample indices, so only cross-entropy is left: call loss(..., indices=...)")
            return ce
        top, predicted = log_p.max(1)
        self.memory.make_room(indices)
        c = self._frequencies(indices).to(z)
        r = top.exp()
        difference = c - c.roll(-1)
        term = (-difference.sign() * (r - r.roll(-1)) + difference.abs()).relu()
        if self.training:
            self._remember(indices, predicted, target)
        return ce + self.weight * term

    @torch.no_grad()
    def _frequencies(self, indices: Tensor) -> Tensor:
        counts = self.memory.values[indices].double()
        if self.history == "largest" or self._epoch is None:
            return counts / self.peak.clamp(min=1)
        top = max(int(self.samples), int(indices.max()) + 1)
        smallest = self.memory.values[:top].min().double()
        return (counts - smallest) / (self._epoch + 1 - smallest).clamp(min=1)

    @torch.no_grad()
    def _remember(self, indices: Tensor, predicted: Tensor, target: Labels) -> None:
        index, y = target.unmixed()
        seen = indices[index]
        self.samples.copy_(torch.maximum(self.samples, indices.max() + 1))
        self.memory.values.index_add_(0, seen, (predicted[index] == y).to(self.memory.values.dtype))
        if len(seen):
            self.peak.copy_(torch.maximum(self.peak, self.memory.values[seen].max()))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        if prefix + "peak" in state_dict:  # older checkpoints lack it; they count by the largest
            state_dict.setdefault(prefix + "samples", self.samples)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
