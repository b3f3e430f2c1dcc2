"""Balanced softmax, or the logit-adjusted loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from calibrant.train.losses import BalancedSoftmax, CrossEntropy, create_loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_formula_worked_out_elsewhere(dtype: torch.dtype, derived: Callable[..., None]) -> None:
    derived(
        "logit_adjust",
        lambda c, g, i: create_loss("logit-adjusted", num_classes=c, class_counts=g[f"{i}.counts"]),
        dtype,
    )


def test_balanced_softmax_by_hand() -> None:
    """z = 0, pi = (.25, .75), tau 2: softmax(2 log pi) = (.1, .9)."""
    loss = BalancedSoftmax(2, [1, 3], tau=2.0)
    assert loss(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0])).exp().item() == pytest.approx(10)
    assert loss.absorbed_prior_strength == 2
    assert torch.equal(loss.adjust_logits(torch.ones(1, 2)), torch.ones(1, 2))


def test_equal_counts_change_nothing() -> None:
    z, y = torch.randn(6, 3, dtype=torch.float64), torch.arange(6) % 3
    assert BalancedSoftmax(3, [9, 9, 9])(z, y).item() == pytest.approx(CrossEntropy(3)(z, y).item(), rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: BalancedSoftmax(4, [50, 30, 12, 1])(z, y), z)
