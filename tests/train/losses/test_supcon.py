"""Supervised contrastive loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.losses import SupCon, create_loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_supcon_equals_pytorch_metric_learning(
    dtype: torch.dtype, golden: Callable[[str], Any], compare: Callable[..., None]
) -> None:
    g = golden("supcon")
    for i, case in enumerate(g.meta["cases"]):
        f = g.tensor(f"{i}.features", dtype).requires_grad_()
        loss = create_loss("supcon", num_classes=case["C"], temperature=case["temperature"])
        value = loss(torch.zeros(len(f), case["C"], dtype=dtype), g.labels(f"{i}.targets"), f)
        value.backward()
        compare(value.detach(), f.grad, g, i)


def test_supcon_pulls_one_positive_pair_by_hand() -> None:
    """Rows 0 and 1 of class 0 at 60 degrees, row 2 of class 1 opposite to row 0. T = 1; row 2 has no positive."""
    f = torch.tensor([[1.0, 0.0], [0.5, 3**0.5 / 2], [-1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1])
    a = -(0.5 - math.log(math.exp(0.5) + math.exp(-1)))
    b = -(0.5 - math.log(math.exp(0.5) + math.exp(-0.5)))
    value = SupCon(2, temperature=1.0)(torch.zeros(3, 2), y, 3 * f)
    assert value.item() == pytest.approx((a + b) / 2)


def test_gradient_of_the_features_is_the_finite_difference() -> None:
    rng = torch.Generator().manual_seed(0)
    f = torch.randn(6, 3, dtype=torch.float64, generator=rng).requires_grad_()
    z, y = torch.zeros(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 0, 1])
    loss = SupCon(4)
    assert torch.autograd.gradcheck(lambda f: loss(z, y, f), f)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature is 0"):
        SupCon(2, temperature=0.0)
