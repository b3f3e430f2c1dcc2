"""Rates by updates, and which parameters have which."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from calibrant.train import TrainConfig
from calibrant.train.loop.optim import build_optimizer, build_schedule
from calibrant.train.losses import create_loss
from calibrant.train.model.network import build_network

Small = Callable[..., TrainConfig]


def test_rates_follow_the_schedule_by_updates(small: Small) -> None:
    """Cosine: up to lr over 2 of 10 epochs, down to min_lr at epoch 8, there to the end."""
    config = small("schedule.epochs=10", "schedule.warmup_epochs=2", "schedule.cooldown_epochs=2", "optimizer.lr=0.01",
                   "schedule.min_lr=0.001", "schedule.warmup_lr=0.0")  # fmt: skip
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [weight], "initial_lr": 0.01}], lr=0.01)
    schedule = build_schedule(config, optimizer, updates_per_epoch=5)
    rates = {}
    for update in (0, 5, 10, 25, 40, 49):
        schedule.step_update(update)
        rates[update] = optimizer.param_groups[0]["lr"]
    cosine = {u: 0.001 + 0.009 * (1 + np.cos(np.pi * u / 40)) / 2 for u in (10, 25)}
    expected = {0: 0.0, 5: 0.005, **cosine, 40: 0.001, 49: 0.001}
    assert rates == pytest.approx(expected)


def test_layer_decay_and_the_loss_s_own_group_reach_the_optimizer(small: Small) -> None:
    config = small(
        "model.name=test_vit",
        "optimizer.layer_decay=0.5",
        "optimizer.loss_lr=0.5",
        "optimizer.lr=0.1",
        "loss.name=fedlas-ls",
    )
    network, _ = build_network(config, 3)
    loss = create_loss("fedlas-ls", num_classes=3)
    optimizer = build_optimizer(config, network, loss)
    assert min(g.get("lr_scale", 1.0) for g in optimizer.param_groups) < 0.2
    own = optimizer.param_groups[-1]
    assert {id(p) for p in own["params"]} == {id(p) for p in loss.parameters()}
    assert (own["lr"], own["weight_decay"]) == (0.5, 0.0)
    undecayed = {id(p) for g in optimizer.param_groups if g["weight_decay"] == 0 for p in g["params"]}
    names = {n for n, p in network.network.named_parameters() if id(p) in undecayed}
    assert "pos_embed" in names
    assert "blocks.0.attn.qkv.bias" in names
    assert "blocks.0.attn.qkv.weight" not in names
