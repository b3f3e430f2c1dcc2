"""Run by test_synced_norm.py: trains a small ResNet with batch norm, alone or as one of two gloo processes.

usage: norm_worker.py RANK WORLD RENDEZVOUS_FILE OUT.pt
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant.train.data.loader import IGNORE
from calibrant.train.losses import create_loss
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.synced_norm import sync_batch_norm

LOSSES = ("ce", "vace", "fedlas-ls")
MODELS = ("test_resnet", "test_efficientnet")  # norms of torch, and of timm with an activation
BATCHES = (8, 8, 5)  # the last one is ragged: three and two rows, one of the second process's three is padding


def run(name: str, loss_name: str, dtype: torch.dtype, rank: int, world: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    network = build_model(name, 4, input_size=(32, 32)).to(dtype).train()
    loss = create_loss(loss_name, num_classes=4, feature_dim=network.feature_dim).to(dtype)
    norms = sync_batch_norm(network) if world > 1 else []
    model = DistributedDataParallel(network) if world > 1 else network
    parameters = [*network.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    rng = torch.Generator().manual_seed(1)
    values: list[Tensor] = []
    for step, rows in enumerate(BATCHES):
        x = torch.randn(rows, 3, 32, 32, generator=rng, dtype=torch.float64).to(dtype)
        y = torch.randint(0, 4, (rows,), generator=rng)
        share = -(-rows // world)
        own = torch.arange(rank * share, (rank + 1) * share)
        real = int((own < rows).sum())
        labels = torch.where(own < rows, y[own.clamp(max=rows - 1)], IGNORE)
        for norm in norms:
            norm.real_rows = real
        optimizer.zero_grad()
        value = loss(*_call(model, x[torch.where(own < rows, own, 0)], labels))
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        values.append(value.detach())
        if step == 0:
            gradient = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        optimizer.step()
    out = {"value": torch.stack(values), "grad": gradient}
    out |= {f"net.{k}": v for k, v in network.state_dict().items()}
    return {k: v.clone() for k, v in (out | {f"loss.{k}": v for k, v in loss.state_dict().items()}).items()}


def _call(model: nn.Module, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits, features = model(x)
    return logits, labels, features


def everything(rank: int, world: int) -> dict[str, Tensor]:
    return {
        f"{name}/{loss}/{dtype}/{k}": v
        for name in MODELS
        for loss in LOSSES
        for dtype in (torch.float64, torch.float32)
        for k, v in run(name, loss, dtype, rank, world).items()
    }


if __name__ == "__main__":
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world)
    torch.save(everything(rank, world), sys.argv[4])
    dist.destroy_process_group()
