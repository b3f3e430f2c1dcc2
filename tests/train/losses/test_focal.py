"""Focal loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses import Focal, create_loss

NAME = "focal"


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_authors_code(dtype: torch.dtype, authors: Callable[..., None]) -> None:
    authors("focal", dtype)


@pytest.mark.parametrize(
    ("options", "p", "expected"),
    [
        ({"gamma": 2}, (0.25, 0.75), 0.75**2 * math.log(4)),
    ],
)
def test_one_row_by_hand(options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    value = create_loss(NAME, num_classes=len(p), **options)(logits(*p), torch.tensor([0]))
    assert value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 3.0])
def test_focal_gradient_is_finite_at_certainty(gamma: float) -> None:
    z = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    Focal(2, gamma=gamma)(z, torch.tensor([0, 0])).backward()
    assert z.grad is not None
    assert torch.isfinite(z.grad).all()


def test_focal_keeps_its_digits_in_float32_on_sure_rows() -> None:
    z = torch.tensor([[9.0, 0.0, -1.0]])
    exact = Focal(3)(z.double(), torch.tensor([0])).item()
    assert Focal(3)(z, torch.tensor([0])).item() == pytest.approx(exact, rel=1e-5)


def test_gamma_zero_is_cross_entropy() -> None:
    z, y = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 5).argmin(1)
    assert Focal(5, gamma=0.0)(z, y).item() == pytest.approx(F.cross_entropy(z, y).item(), rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: Focal(4, gamma=2.0)(z, y), z)
