"""MbLS: smoothing beyond a margin of the logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train.losses import MbLS, create_loss

NAME = "mbls"


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_authors_code(dtype: torch.dtype, authors: Callable[..., None]) -> None:
    authors("mbls", dtype)


def test_ignored_rows_leave_the_penalty_too(golden: Callable[[str], Any]) -> None:
    """The authors keep them there: the golden case differs from ours, and ours is the loss without those rows."""
    g = golden(NAME)
    z, y = g.tensor("5.logits"), g.labels("5.targets")
    keep = y != -100
    assert 0 < keep.sum() < len(y)
    loss = create_loss(NAME, num_classes=z.shape[1])
    assert loss(z, y).item() == pytest.approx(loss(z[keep], y[keep]).item(), rel=1e-14)
    assert abs(loss(z, y).item() - g["5.loss"]) > 1e-4


@pytest.mark.parametrize(
    ("options", "p", "expected"),
    [
        ({"alpha": 1, "margin": 1}, (math.exp(-3), 1 - math.exp(-3)), 3 + (3 + math.log1p(-math.exp(-3)) - 1) / 2),
    ],
)
def test_one_row_by_hand(options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    value = create_loss(NAME, num_classes=len(p), **options)(logits(*p), torch.tensor([0]))
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: MbLS(4, margin=0.5)(z, y), z)
