"""The explicit confidence penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train.losses import ECP, create_loss

NAME = "ecp"


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_formula_worked_out_elsewhere(dtype: torch.dtype, derived: Callable[..., None]) -> None:
    derived("ecp", lambda c, g, i: create_loss("ecp", num_classes=c), dtype)


@pytest.mark.parametrize(
    ("options", "p", "expected"),
    [
        ({"beta": 0.5}, (0.5, 0.5), math.log(2) - 0.5 * math.log(2)),
    ],
)
def test_one_row_by_hand(options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    value = create_loss(NAME, num_classes=len(p), **options)(logits(*p), torch.tensor([0]))
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: ECP(4, beta=0.3)(z, y), z)
