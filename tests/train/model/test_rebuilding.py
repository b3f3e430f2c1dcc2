"""What can be built from a name is told from what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from calibrant import plugins
from calibrant.errors import ModelError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.model.rebuilding import described

SIZE = Preprocessing((32, 32), 32)


def test_a_model_of_timm_is_known_by_its_architecture() -> None:
    model = timm.create_model("test_resnet", num_classes=3).eval()
    found = described(model, 3, SIZE, None)
    assert found is not None
    assert found.name == "test_resnet"
    x = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(found.network(x)[0], model(x))
    model.act1 = nn.Tanh()  # no longer what its name builds
    assert described(model, 3, SIZE, None) is None or not hasattr(model, "act1")


def test_any_other_network_is_not_known() -> None:
    assert described(nn.Linear(3, 3), 3, SIZE, None) is None


def test_a_plugins_model_brings_its_weights(example_plugin: Path) -> None:
    model = plugins.registered("models")["tiny"].make(num_classes=2)
    found = described(model, 2, Preprocessing((24, 24), 24), "tiny")
    assert found is not None
    x = torch.randn(1, 3, 24, 24)
    torch.testing.assert_close(found.network(x)[0], model(x))
    with pytest.raises(ModelError, match='no plugin has registered a model "other"'):
        described(model, 2, SIZE, "other")
    with pytest.raises(ModelError, match='is not what the plugin builds as "tiny"'):
        described(nn.Linear(2, 2), 2, SIZE, "tiny")
