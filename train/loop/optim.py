"""Optimizer and schedule, from timm's factories, with the loss's own parameters in a group of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from calibrant.errors import ConfigError, did_you_mean
from calibrant.train.config import TrainConfig
from calibrant.train.model.feature_model import FeatureModel


def build_optimizer(config: TrainConfig, network: FeatureModel, loss: nn.Module) -> torch.optim.Optimizer:
    """No decay on biases, norms and what the model exempts; the loss's parameters have none and their own rate.

    The groups are made here and not by timm from a wrapper: it would not see `no_weight_decay()` there.
    """
    from timm.optim import create_optimizer_v2, list_optimizers, param_groups_layer_decay, param_groups_weight_decay

    options, bare = config.optimizer, network.network
    if options.name not in list_optimizers():
        raise ConfigError(
            f'timm has no optimizer "{options.name}"',
            where="optimizer",
            fix=did_you_mean(options.name, list_optimizers()),
        )
    exempt = bare.no_weight_decay() if hasattr(bare, "no_weight_decay") else set()  # type: ignore[operator]
    groups: list[dict[str, Any]]
    if options.layer_decay is not None:
        if not hasattr(bare, "group_matcher"):
            raise ConfigError(f"{config.model.name} has no order of layers", where="optimizer.layer_decay")
        groups = param_groups_layer_decay(
            bare, options.weight_decay, no_weight_decay_list=exempt, layer_decay=options.layer_decay
        )
    else:
        groups = param_groups_weight_decay(bare, options.weight_decay, no_weight_decay_list=exempt)
    lr = options.lr
    assert lr is not None  # decided by defaults.resolved()
    groups = _with_own_rate(groups, network, lr * (options.head_lr_factor or 1.0), lr)
    own = [p for p in loss.parameters() if p.requires_grad]
    if own:
        groups.append({"params": own, "weight_decay": 0.0, "lr": options.loss_lr or lr})
    try:
        optimizer: torch.optim.Optimizer = create_optimizer_v2(
            groups,
            opt=options.name,
            lr=lr,
            weight_decay=options.weight_decay,
            momentum=options.momentum,
            **options.options,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{options.name} does not take these options ({error})", where="optimizer") from None
    return optimizer


def build_schedule(config: TrainConfig, optimizer: torch.optim.Optimizer, updates_per_epoch: int) -> Any:
    """A scheduler by updates; but for plateau, `step_update(n)` alone decides the rates, so it needs no saving."""
    from timm.scheduler import create_scheduler_v2

    from calibrant.train.loop.schedules import OneCycle, Plateau

    s, lr = config.schedule, config.optimizer.lr
    assert lr is not None
    if s.name == "onecycle":
        return OneCycle(optimizer, updates=s.epochs * updates_per_epoch, peak=s.peak)
    if s.name == "plateau":
        assert config.engine.select is not None  # decided by defaults.resolved()
        return Plateau(
            optimizer,
            factor=s.decay_rate,
            patience=s.plateau_patience,
            warmup_updates=round((s.warmup_epochs or 0.0) * updates_per_epoch),
            warmup_lr=min(s.warmup_lr, lr),
            min_lr=min(s.min_lr, lr),
            by=config.engine.select,
        )
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched=s.name,
        num_epochs=s.epochs - s.cooldown_epochs,
        decay_rate=s.decay_rate,
        warmup_epochs=s.warmup_epochs or 0.0,
        warmup_lr=min(s.warmup_lr, lr),
        min_lr=min(s.min_lr, lr),
        decay_epochs=s.decay_epochs,
        decay_milestones=list(s.milestones),
        step_on_epochs=False,
        updates_per_epoch=updates_per_epoch,
    )
    return scheduler


def _with_own_rate(groups: list[dict[str, Any]], network: FeatureModel, rate: float, lr: float) -> list[dict[str, Any]]:
    """The groups with the classifier's parameters in groups of their own, which have `rate`."""
    if rate == lr:
        return groups
    head = {id(p) for layer in network.classifier_layers() for p in layer.parameters()}
    parted: list[dict[str, Any]] = []
    for group in groups:
        inside = [p for p in group["params"] if id(p) in head]
        outside = [p for p in group["params"] if id(p) not in head]
        if outside:
            parted.append({**group, "params": outside})
        if inside:
            parted.append({**group, "params": inside, "lr": rate})
    return parted
