"""A classifier that starts from zero, stages that do not learn, and batch norms that stay as they came."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import ModelError
from calibrant.train.config import train_config
from calibrant.train.model.feature_model import build_model
from calibrant.train.model.network import build_network, train_last, zero_head


@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_convnext"])
def test_from_zero_every_class_is_equally_likely(name: str) -> None:
    network = build_model(name, 7)
    zero_head(network)
    logits, _ = network(torch.randn(3, 3, *network.input_size))
    assert F.cross_entropy(logits, torch.tensor([0, 3, 6])).item() == pytest.approx(math.log(7), abs=1e-6)


def test_only_the_last_stage_and_the_classifier_learn() -> None:
    network = build_model("test_resnet", 5)
    train_last(network, 1)
    learning = {name.split(".")[0] for name, p in network.network.named_parameters() if p.requires_grad}
    assert learning == {"layer4", "fc"}
    train_last(network, 2)
    learning = {name.split(".")[0] for name, p in network.network.named_parameters() if p.requires_grad}
    assert learning == {"layer3", "layer4", "fc"}


def test_stages_that_do_not_learn_keep_their_statistics() -> None:
    network = build_model("test_resnet", 5)
    train_last(network, 1)
    network.train()
    before = {k: v.clone() for k, v in network.network.state_dict().items() if "running_mean" in k}
    network(torch.randn(4, 3, 64, 64))
    moved = {k for k, v in network.network.state_dict().items() if k in before and not torch.equal(v, before[k])}
    assert moved
    assert all(k.startswith("layer4") for k in moved)


def test_frozen_norms_keep_the_statistics_that_they_came_with_and_learn_all_the_same() -> None:
    network = build_model("test_resnet", 5)
    network.frozen_norms = True
    network.train()
    before = {k: v.clone() for k, v in network.network.state_dict().items() if "running" in k}
    logits, _ = network(torch.randn(4, 3, 64, 64))
    logits.sum().backward()
    after = network.network.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert network.network.bn1.weight.grad is not None  # type: ignore[union-attr]


def test_more_stages_than_there_are_is_all_of_them() -> None:
    network = build_model("test_resnet", 5)
    train_last(network, 99)
    assert all(p.requires_grad for p in network.parameters())


def test_recomputing_gives_the_gradients_of_a_plain_pass() -> None:
    grads = []
    for setting in ("false", "true"):
        torch.manual_seed(0)
        config = train_config(
            {"model": {"name": "test_vit", "pretrained": False}}, [f"engine.grad_checkpointing={setting}"]
        )
        network, _ = build_network(config, 4)
        network.train()
        x = torch.randn(2, 3, *network.input_size, generator=torch.Generator().manual_seed(1))
        network(x)[0].square().sum().backward()
        grads.append(torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None]))
    assert torch.allclose(grads[0], grads[1], atol=1e-6)


def test_a_network_without_an_order_of_layers_says_so() -> None:
    network = build_model("test_resnet", 5)
    network.network = torch.nn.Linear(2, 2)
    with pytest.raises(ModelError, match="no order of layers"):
        train_last(network, 1)
