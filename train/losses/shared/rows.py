"""Arrays of rows: (N, C) values, picked, averaged and flattened, in a precision that a loss can be computed in."""

from __future__ import annotations

import torch
from torch import Tensor


def take(values: Tensor, y: Tensor) -> Tensor:
    """values[i, y_i]: (N, C), (N,) -> (N,)."""
    return values.gather(1, y[:, None]).squeeze(1)


def class_mean(values: Tensor) -> Tensor:
    """Mean over classes, (N, C) -> (N,). Unlike .mean(1) its gradient divides N numbers and not N C."""
    return values.sum(1) / values.shape[1]


def at_least_float32(t: Tensor) -> Tensor:
    """t, in float32 where it was of half precision."""
    return t if t.dtype in (torch.float32, torch.float64) else t.float()


def rows_last(t: Tensor) -> Tensor:
    """(B, K, *spatial) -> (B * prod(spatial), K)."""
    return t if t.ndim == 2 else t.movedim(1, -1).reshape(-1, t.shape[1])
