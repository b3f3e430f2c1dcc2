"""MDCA: mean confidence against frequency, class by class."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses import MDCA, CrossEntropy, Focal


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_formula_worked_out_elsewhere(dtype: torch.dtype, derived: Callable[..., None]) -> None:
    derived("mdca", lambda c, g, i: lambda z, y: MDCA(c)(z, y) - CrossEntropy(c)(z, y), dtype)


def test_mdca_by_hand_and_on_top_of_focal() -> None:
    """Mean probabilities (.75, .25), class shares (.5, .5)."""
    z, y = torch.cat([logits(0.9, 0.1), logits(0.6, 0.4)]), torch.tensor([0, 1])
    assert MDCA(2, beta=2.0)(z, y).item() == pytest.approx(F.cross_entropy(z, y).item() + 2 * 0.25, rel=1e-12)
    assert MDCA(2, gamma=2.0)(z, y).item() == pytest.approx(Focal(2, gamma=2.0)(z, y).item() + 0.25, rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: MDCA(4, beta=2.0)(z, y), z)
