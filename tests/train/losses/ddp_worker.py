"""Run by test_distributed.py: trains a small net with every loss, alone or as one of two gloo processes.

usage: ddp_worker.py RANK WORLD RENDEZVOUS_FILE OUT.pt
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from calibrant.train.losses import LOSSES, Combined, CosineHead, Loss, MixedTarget, create_loss

C, D, ROWS, STEPS = 5, 6, 8, 4
COUNTS = [40, 20, 9, 4, 2]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in LOSSES} | {
    "mmce weighted": ("mmce", {"weighted": True}),
    "fedlas-ls msp": ("fedlas-ls", {"indicator": "msp", "init": "first_batch"}),
    "ldam drw": ("ldam", {"drw_start": 0.0}),
    "vace mixed": ("vace", {"mode": "centered", "gauge": "mean"}),
    "focal mixed": ("focal", {}),
    "ce soft": ("ce", {}),
    "center ema": ("center", {"rule": "ema"}),
    "ce hardest": ("ce", {"keep_hardest": 0.5}),
    "focal sum": ("focal", {"reduction": "sum"}),
}


class Net(nn.Module):
    def __init__(self, cosines: bool) -> None:
        super().__init__()
        self.body = nn.Linear(8, D)
        self.head = CosineHead(D, C) if cosines else nn.Linear(D, C)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.body(x).tanh()
        return self.head(f), f


def make_loss(name: str, options: dict[str, Any]) -> Loss:
    loss = create_loss(name, num_classes=C, feature_dim=D, class_counts=COUNTS, **options)
    if loss.trains_classifier:
        return loss
    return Combined([(1.0, create_loss("ce", num_classes=C)), (0.5, loss)])


def run(variant: str, dtype: torch.dtype, rank: int, world: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    name, options = VARIANTS[variant]
    loss = make_loss(name, options).to(dtype)
    net = Net(loss.needs_cosines).to(dtype)
    model = DistributedDataParallel(net) if world > 1 else net
    parameters = [*net.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    rng = torch.Generator().manual_seed(1)
    values = []
    for step in range(STEPS):
        x = torch.randn(ROWS, 8, generator=rng, dtype=torch.float64).to(dtype) * (1 + step)
        y, y2 = torch.randint(0, C, (2, ROWS), generator=rng)
        index = torch.randperm(12, generator=rng)[:ROWS]
        lam = torch.rand(ROWS, generator=rng, dtype=torch.float64)
        lam[::2] = 1
        if step == 1:
            y[2] = -100
        if step == STEPS - 1:
            y[5:] = -100  # the last batch has five rows; padding fills it up, all of it on rank 1
        own = slice(rank * ROWS // world, (rank + 1) * ROWS // world)
        target: Tensor | MixedTarget = y[own]
        if "mixed" in variant:
            target = MixedTarget(y[own], y2[own], lam[own])
        elif "soft" in variant:
            target = torch.zeros(ROWS, C, dtype=dtype)
            target[y >= 0] = torch.randn(C, C, generator=rng).softmax(1).to(dtype)[y[y >= 0]]
            target = target[own]
        optimizer.zero_grad()
        logits, features = model(x[own])
        value = loss(logits, target, features, indices=index[own])
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        values.append(value.detach())
        if step == 0:
            first_grad = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        optimizer.step()
    loss.on_epoch_end(0, 1)
    out = {"value": torch.stack(values), "grad": first_grad}
    out |= {f"net.{k}": v for k, v in net.state_dict().items()}
    out |= {f"loss.{k}": v for k, v in loss.state_dict().items()}
    return {k: v.clone() for k, v in out.items()}


def everything(rank: int, world: int) -> dict[str, Tensor]:
    return {
        f"{variant}/{dtype}/{k}": v
        for variant in VARIANTS
        for dtype in (torch.float64, torch.float32)
        for k, v in run(variant, dtype, rank, world).items()
    }


if __name__ == "__main__":
    rank, world = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=rank, world_size=world)
    torch.save(everything(rank, world), sys.argv[4])
    dist.destroy_process_group()
