"""FLSD-53: gamma by the probability of the true class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train.losses import FLSD53, create_loss

NAME = "flsd53"


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_authors_code(dtype: torch.dtype, authors: Callable[..., None]) -> None:
    authors("flsd53", dtype)


@pytest.mark.parametrize(
    ("options", "p", "expected"),
    [
        ({}, (0.1, 0.9), 0.9**5 * math.log(10)),
        ({}, (0.3, 0.7), 0.7**3 * -math.log(0.3)),
        ({}, (0.45, 0.55), 0.55**3 * -math.log(0.45)),
        ({"gamma": 1.0}, (0.45, 0.55), 0.55**3 * -math.log(0.45)),
        ({"gamma": 1.0}, (0.6, 0.4), 0.4 * -math.log(0.6)),
    ],
)
def test_one_row_by_hand(options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    value = create_loss(NAME, num_classes=len(p), **options)(logits(*p), torch.tensor([0]))
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: FLSD53(4)(z, y), z)
