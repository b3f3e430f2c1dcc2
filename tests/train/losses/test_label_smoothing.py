"""Label smoothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses import LabelSmoothing, create_loss

NAME = "ls"


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_authors_code(dtype: torch.dtype, authors: Callable[..., None]) -> None:
    authors("ls", dtype)


@pytest.mark.parametrize(
    ("options", "p", "expected"),
    [
        ({"alpha": 0.2}, (0.25, 0.75), 0.8 * math.log(4) + 0.1 * (math.log(4) - math.log(0.75))),
    ],
)
def test_one_row_by_hand(options: dict[str, Any], p: tuple[float, ...], expected: float) -> None:
    value = create_loss(NAME, num_classes=len(p), **options)(logits(*p), torch.tensor([0]))
    assert value.item() == pytest.approx(expected, rel=1e-12)


def test_label_smoothing_is_torchs() -> None:
    z, y = torch.randn(7, 5, dtype=torch.float64), torch.arange(7) % 5
    expected = F.cross_entropy(z, y, label_smoothing=0.1).item()
    assert LabelSmoothing(5, alpha=0.1)(z, y).item() == pytest.approx(expected, rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: LabelSmoothing(4, alpha=0.2)(z, y), z)
