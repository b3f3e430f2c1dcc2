"""Optimiser, learning-rate schedule and running average of the weights of a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant.settings.heads import HeadConfig


def make_optimizer(config: HeadConfig, modules: list[nn.Module], lr: float) -> torch.optim.Optimizer:
    """The head's parameters decay, those of losses and projection heads do not."""
    o = config.optimizer
    own = [p for p in modules[0].parameters() if p.requires_grad]
    other = [p for m in modules[1:] for p in m.parameters() if p.requires_grad]
    groups = [{"params": own, "weight_decay": o.weight_decay}]
    if other:
        groups.append({"params": other, "weight_decay": 0.0})
    if o.name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=o.momentum, fused=True)
    return torch.optim.AdamW(groups, lr=lr, fused=True)


def make_schedule(
    config: HeadConfig, optimizer: torch.optim.Optimizer, lr: float, steps: int
) -> torch.optim.lr_scheduler.LRScheduler | None:
    name = config.optimizer.schedule
    if name == "constant" or steps < 4:
        return None
    if name == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)


class WeightAverage:
    """Exponential average of weights and buffers; warmed up, since the first steps are far from the end."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay, self.steps = module, decay, 0
        self.values = [t.detach().clone() for t in self._tensors()]

    def _tensors(self) -> list[Tensor]:
        return list(self.module.parameters())

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(self.values, [t.detach() for t in self._tensors()], 1 - decay)

    @torch.no_grad()
    def copy_back(self) -> None:
        for t, value in zip(self._tensors(), self.values, strict=True):
            t.copy_(value)
