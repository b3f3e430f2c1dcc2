"""One small number per training sample, kept over epochs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class SampleMemory(nn.Module):
    """values[index], integer, 0 for samples never seen. Grows with the largest index; loads state of any length."""

    values: Tensor

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("values", torch.zeros(0, dtype=dtype))

    def make_room(self, indices: Tensor) -> None:
        need = int(indices.max()) + 1 if len(indices) else 0
        if len(indices) and int(indices.min()) < 0:
            raise ValueError("sample indices must not be negative")
        if need > len(self.values):
            size = max(need, 2 * len(self.values))
            self.values = torch.cat([self.values, self.values.new_zeros(size - len(self.values))])

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "values")
        if saved is not None and saved.shape != self.values.shape:
            self.values = self.values.new_zeros(saved.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
