"""Schedules that timm does not have in our terms: one-cycle, and plateau with a state that a checkpoint can hold.

Both are timm schedulers, so layer decay (`lr_scale`) reaches them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from timm.scheduler.scheduler import Scheduler

from calibrant.calibration.metrics.table import metric

START, END = 25.0, 1e4  # the first rate is the highest over START, the last one the first over END
MOMENTUM = (0.95, 0.85)  # far from the peak, and at it


class OneCycle(Scheduler):  # type: ignore[misc]
    """Up to each group's rate in `peak` of the updates and down to nearly nothing, both along a cosine.

    Momentum (Adam's beta 1) goes the other way, .95 -> .85 -> .95. Source: Smith & Topin 2018, as torch's OneCycleLR
    with its defaults has it; a function of the update alone, so a run can go on anywhere.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, updates: int, peak: float) -> None:
        super().__init__(optimizer, "lr", t_in_epochs=False)
        self.updates, self.peak = updates, peak
        self._momenta = [_momentum_of(group) for group in optimizer.param_groups]
        self.step_update(0)

    def _shares(self, t: int) -> tuple[float, float]:
        """The rate and the momentum at update t: shares of the way from the start to the peak, and past it."""
        top = max(0.0, self.peak * self.updates - 1)
        if t <= top:
            return (_cosine(t / top) if top else 1.0), 0.0
        return 1.0, _cosine(min(1.0, (t - top) / max(1e-9, self.updates - 1 - top)))

    def _get_lr(self, t: int) -> list[float]:
        up, down = self._shares(t)
        found = []
        for highest in self.base_values:
            start = highest / START
            found.append(start + (highest - start) * up if not down else highest + (start / END - highest) * down)
        return found

    def step_update(self, num_updates: int, metric: float | None = None) -> None:
        super().step_update(num_updates, metric)
        up, down = self._shares(num_updates)
        far, near = MOMENTUM
        value = far + (near - far) * (up - down)
        for group, key in zip(self.optimizer.param_groups, self._momenta, strict=True):
            if key == "betas":
                group["betas"] = (value, *group["betas"][1:])
            elif key == "momentum":
                group["momentum"] = value


class Plateau(Scheduler):  # type: ignore[misc]
    """The rate times `factor` after `patience` epochs in which the metric `by` did not improve; warm-up before."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        factor: float,
        patience: int,
        warmup_updates: int,
        warmup_lr: float,
        min_lr: float,
        by: str,
    ) -> None:
        super().__init__(optimizer, "lr", t_in_epochs=False)
        self.factor, self.patience, self.min_lr = factor, patience, min_lr
        self.warmup_updates, self.warmup_lr = warmup_updates, warmup_lr
        self._higher = metric(by).better == "higher"
        self.best: float | None = None
        self.waited = 0
        self.reductions = 0
        self.step_update(0)

    def _get_lr(self, t: int) -> list[float]:
        if t < self.warmup_updates:
            return [self.warmup_lr + (v - self.warmup_lr) * t / self.warmup_updates for v in self.base_values]
        return [max(min(self.min_lr, v), v * self.factor**self.reductions) for v in self.base_values]

    def after_epoch(self, value: float, update: int) -> None:
        """What validation said at the end of an epoch."""
        better = self.best is None or (value > self.best if self._higher else value < self.best)
        if better:
            self.best, self.waited = value, 0
        elif update > self.warmup_updates:
            self.waited += 1
        if self.waited >= self.patience:
            self.waited, self.reductions = 0, self.reductions + 1
        self.step_update(update)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited, "reductions": self.reductions}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.waited = state_dict["best"], int(state_dict["waited"])
        self.reductions = int(state_dict["reductions"])


def _cosine(share: float) -> float:
    return (1 - math.cos(math.pi * share)) / 2


def _momentum_of(group: dict[str, Any]) -> str | None:
    return next((key for key in ("betas", "momentum") if group.get(key)), None)
