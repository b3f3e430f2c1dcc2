"""All-gather rows with the gradient that makes every loss right under DistributedDataParallel.

Each rank evaluates the same loss on the rows of all ranks. DDP averages gradients over W ranks, and the rows that a
rank owns are 1/W of the batch, so the backward pass of the gather is W * grad[own rows]. No communication is needed
there: all ranks hold the same gradient. Losses with batch statistics, pairs of rows or parameters of their own then
equal one process that holds the whole batch.
Every rank must bring the same number of rows: pad a short last batch with rows labelled `ignore_index`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Number of processes that share a batch; 1 outside torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.rows = rows.shape[0]
        return _all_gather(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        start = dist.get_rank() * int(ctx.rows)
        return dist.get_world_size() * grads[0][start : start + ctx.rows]


def _all_gather(rows: Tensor) -> Tensor:
    rows = rows.contiguous()
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


def gather_rows(rows: Tensor) -> Tensor:
    """(n, ...) on every rank -> (W * n, ...) in rank order; gradients reach the own rows only, times W."""
    if rows.requires_grad and torch.is_grad_enabled():
        gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
        return gathered
    return _all_gather(rows)
