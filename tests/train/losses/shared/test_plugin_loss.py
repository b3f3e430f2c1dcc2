"""A plain function or module is a loss like ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from calibrant import plugins
from calibrant.errors import ConfigError
from calibrant.train.losses import CrossEntropy, MixedTarget, create_loss

Z = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
Y = torch.tensor([0, 0, 1])


@pytest.fixture(autouse=True)
def _losses(example_plugin: Path) -> Iterator[None]:
    plugins.register_loss("module")(nn.CrossEntropyLoss)

    @plugins.register_loss("counted")
    class Counted(nn.Module):
        def __init__(self, num_classes: int, class_counts: list[int]) -> None:
            super().__init__()
            self.scale = sum(class_counts) / num_classes

        def forward(self, logits: Tensor, labels: Tensor, features: Tensor) -> Tensor:
            return self.scale * features.sum(1) + 0 * logits.sum(1)

    plugins.register_loss("ours")(CrossEntropy)
    yield
    for name in ("module", "counted", "ours"):
        del plugins._TABLES["losses"][name]


def test_a_function_gives_a_loss_for_each_row() -> None:
    rows = (1 - Z.softmax(1)[torch.arange(3), Y]) ** 3
    loss = create_loss("squared", num_classes=2, power=3.0)
    torch.testing.assert_close(loss(Z, Y), rows.mean())
    torch.testing.assert_close(create_loss("squared", num_classes=2, power=3.0, reduction="none")(Z, Y), rows)
    ignored = torch.tensor([0, -100, 1])
    torch.testing.assert_close(loss(Z, ignored), rows[[0, 2]].mean())


def test_a_library_s_module_gives_the_mean() -> None:
    loss = create_loss("module", num_classes=2, label_smoothing=0.1)
    torch.testing.assert_close(loss(Z, Y), nn.functional.cross_entropy(Z, Y, label_smoothing=0.1))
    mixed = MixedTarget(Y, 1 - Y, 0.7)
    both = 0.7 * nn.functional.cross_entropy(Z, Y) + 0.3 * nn.functional.cross_entropy(Z, 1 - Y)
    torch.testing.assert_close(create_loss("module", num_classes=2)(Z, mixed), both)
    with pytest.raises(ConfigError, match="one number for all rows"):
        create_loss("module", num_classes=2, reduction="sum")(Z, Y)


def test_a_constructor_gets_what_it_names() -> None:
    loss = create_loss("counted", num_classes=2, feature_dim=4, class_counts=[3, 5])
    assert loss.needs_features
    features = torch.ones(3, 4, requires_grad=True)
    torch.testing.assert_close(loss(Z, Y, features), torch.tensor(16.0))
    loss(Z, Y, features).backward()
    assert features.grad is not None


def test_one_of_our_own_kind_is_made_as_ours() -> None:
    assert isinstance(create_loss("ours", num_classes=2), CrossEntropy)


def test_an_option_that_it_has_not_is_named() -> None:
    with pytest.raises(ConfigError, match="loss squared has no option 'pover'; did you mean \"power\""):
        create_loss("squared", num_classes=2, pover=1)
    with pytest.raises(ConfigError, match="no loss 'squarred'; did you mean \"squared\""):
        create_loss("squarred", num_classes=2)
