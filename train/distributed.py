"""Several processes under torchrun or Ray Train: who am I, and the few things that all ranks must agree on.

Losses gather the rows of all ranks by themselves (losses/shared/gather.py), so every rank computes the same loss of
the whole batch; the network's gradients are averaged by DistributedDataParallel and the loss's own are already equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from calibrant.errors import ConfigError
from calibrant.train.machines.torchrun import own_store, raise_lost


@dataclass(frozen=True)
class Ranks:
    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0


@contextmanager
def processes(device: str) -> Iterator[Ranks]:
    """Joins the processes that torchrun started; Ray Train has joined them already, and one alone needs nothing."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or dist.is_initialized():
        yield (
            Ranks(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
            if (dist.is_available() and dist.is_initialized())
            else Ranks()
        )
        return
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    rank = int(os.environ.get("RANK", "0"))
    store = own_store(rank, world)
    own: dict[str, Any] = {} if store is None else {"store": store, "rank": rank, "world_size": world}
    dist.init_process_group("nccl" if cuda else "gloo", **own)
    try:
        yield Ranks(dist.get_rank(), world, int(os.environ.get("LOCAL_RANK", "0")))
    except RuntimeError as error:
        raise_lost(error, rank)
        raise
    finally:
        dist.destroy_process_group()


def pick_device(name: str, ranks: Ranks) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if name == "cuda" and ranks.world > 1:
        name = f"cuda:{ranks.local}"
    try:
        device = torch.device(name)
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("this machine has no CUDA device", where=f"engine.device {name}", fix="use cpu or auto")
    except RuntimeError:
        raise ConfigError(f'"{name}" is not a device', where="engine.device", fix="use auto, cpu or cuda") from None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def same_start(modules: list[nn.Module]) -> None:
    """Give every rank the first one's parameters and buffers."""
    if dist.is_available() and dist.is_initialized():
        for module in modules:
            for t in [*module.parameters(), *module.buffers()]:
                dist.broadcast(t.data, 0)


def same_buffers(module: nn.Module) -> None:
    """Batch statistics are each rank's own during an epoch; the first one's are what gets evaluated and saved."""
    if dist.is_available() and dist.is_initialized():
        for t in module.buffers():
            dist.broadcast(t, 0)


def gather_uneven(rows: Tensor) -> Tensor:
    """The rows of all ranks in order, which may be of different number."""
    if not (dist.is_available() and dist.is_initialized()):
        return rows
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, count)
    most = max(int(c) for c in counts)
    padded = rows.new_zeros((most, *rows.shape[1:]))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([p[: int(c)] for p, c in zip(parts, counts, strict=True)])


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether the flag is set anywhere: what one rank decides, all do."""
    if not (dist.is_available() and dist.is_initialized()):
        return flag
    t = torch.tensor([float(flag)], device=device)
    dist.all_reduce(t)
    return bool(t > 0)


def is_first() -> bool:
    """Whether this process speaks for its group, also before it has joined and after it has left."""
    return int(os.environ.get("RANK", "0")) == 0


def barrier() -> None:
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
