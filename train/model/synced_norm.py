"""Batch norm over the rows of all processes, so that several processes train as one would with the whole batch.

torch.nn.SyncBatchNorm runs on CUDA only and counts the rows that pad a short last batch; this one runs wherever
torch.distributed does and leaves them out. The layers stay what they are (names, state, evaluation, export): only their
forward pass in training is another.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from calibrant.errors import ConfigError

_KNOWN = {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNormAct2d"}


class _Sum(torch.autograd.Function):
    """The sum over processes; every process's loss depends on it, so its gradient is summed over them too."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return _summed(t)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _summed(grads[0])


def _summed(t: Tensor) -> Tensor:
    t = t.clone(memory_format=torch.contiguous_format)
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(t)
    return t


class Synced(nn.modules.batchnorm._BatchNorm):
    """y = (x - m) / sqrt(v + eps) * w + b, m and v of the real rows of all processes, in two passes, at least float32.

    Mixed into a layer's own class by `sync_batch_norm`. real_rows: how many of the own rows are no padding; None: all.
    """

    real_rows: int | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            y: Tensor = super().forward(x)
            return y
        z = x if x.dtype == torch.float64 else x.float()
        own = z[: self.real_rows]
        over = [d for d in range(z.ndim) if d != 1]
        shape = [-1 if d == 1 else 1 for d in range(z.ndim)]
        sums: Tensor = _Sum.apply(torch.cat([own.sum(over), own.new_tensor([own.numel() / own.shape[1]])]))  # type: ignore[no-untyped-call]
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = z - mean.reshape(shape)
        squares: Tensor = _Sum.apply(centred[: self.real_rows].square().sum(over))  # type: ignore[no-untyped-call]
        var = squares / count
        scale = torch.rsqrt(var + self.eps)
        y = centred * (scale if self.weight is None else scale * self.weight).reshape(shape)
        if self.bias is not None:
            y = y + self.bias.reshape(shape)
        self._remember(mean, var, count)
        y = y.to(x.dtype)
        act: Any = getattr(self, "act", None)  # timm's norm with an activation behind it
        drop: Any = getattr(self, "drop", None)
        return y if act is None or drop is None else act(drop(y))  # type: ignore[no-any-return]

    @torch.no_grad()
    def _remember(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), weight)
        self.running_var.lerp_((var * count / (count - 1).clamp(min=1)).to(self.running_var), weight)


def sync_batch_norm(network: nn.Module) -> list[Synced]:
    """Make the batch norms of a network synced, in place; gives them. A network without any, or with an unknown kind,
    is refused.
    """
    layers = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    strange = next((type(m).__name__ for m in layers if type(m).__name__ not in _KNOWN), None)
    if strange is not None or not layers:
        what = f"has a {strange}, which cannot be synced" if strange is not None else "has no batch norm"
        raise ConfigError(f"{type(network).__name__} {what}", where="engine.sync_bn", fix="leave it out")
    for layer in layers:
        kind = type(layer)
        layer.__class__ = type(f"Synced{kind.__name__}", (Synced, kind), {})
    return [m for m in layers if isinstance(m, Synced)]
