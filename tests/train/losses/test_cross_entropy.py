"""Cross-entropy."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from calibrant.train.losses import CrossEntropy, create_loss

NAME = "ce"


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("options", "p", "expected"),
    [
        ({}, (0.25, 0.75), math.log(4)),
        ({}, (0.5, 0.3, 0.2), math.log(2)),
    ],
)
def test_one_row_by_hand(options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    value = create_loss(NAME, num_classes=len(p), **options)(logits(*p), torch.tensor([0]))
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_soft_targets_weigh_the_surprises() -> None:
    q = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    expected = 0.25 * math.log(5) + 0.75 * math.log(1.25)
    assert CrossEntropy(2)(logits(0.2, 0.8), q).item() == pytest.approx(expected, rel=1e-12)


def test_the_mean_is_over_the_rows_that_are_kept() -> None:
    z = torch.cat([logits(0.25, 0.75), logits(0.5, 0.5), logits(0.9, 0.1)])
    value = CrossEntropy(2)(z, torch.tensor([0, 1, -100]))
    assert value.item() == pytest.approx((math.log(4) + math.log(2)) / 2, rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: CrossEntropy(4)(z, y), z)
