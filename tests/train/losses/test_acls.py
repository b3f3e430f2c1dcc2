"""ACLS: smoothing that follows the logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses import ACLS, create_loss

NAME = "acls"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_authors_code(dtype: torch.dtype, authors: Callable[..., None]) -> None:
    authors("acls", dtype)


def test_ignored_rows_leave_the_penalty_too(golden: Callable[[str], Any]) -> None:
    """The authors keep them there: the golden case differs from ours, and ours is the loss without those rows."""
    g = golden(NAME)
    z, y = g.tensor("5.logits"), g.labels("5.targets")
    keep = y != -100
    assert 0 < keep.sum() < len(y)
    loss = create_loss(NAME, num_classes=z.shape[1])
    assert loss(z, y).item() == pytest.approx(loss(z[keep], y[keep]).item(), rel=1e-14)
    assert abs(loss(z, y).item() - g["5.loss"]) > 1e-4


def test_acls_ties_all_count_as_the_maximum() -> None:
    z = torch.tensor([[3.0, 3.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = ACLS(3, alpha=1.0, margin=1.0, pos_lambda=1.0, neg_lambda=1.0)(z, torch.tensor([0]))
    ce = F.cross_entropy(z, torch.tensor([0]))
    assert (value - ce).item() == pytest.approx(4 + 4 + 4 / 2)
    (grad,) = torch.autograd.grad(value - ce, z)
    assert grad[0].tolist() == pytest.approx([4, 4, -2])  # both tied entries, and the gap's maximum detached


def test_acls_depends_on_a_shift_unless_told_otherwise() -> None:
    z, y = torch.randn(6, 4, dtype=torch.float64) * 5, torch.arange(6) % 4
    plain, invariant = ACLS(4, margin=2.0), ACLS(4, margin=2.0, shift_invariant=True)
    assert abs(plain(z + 10, y).item() - plain(z, y).item()) > 0.1
    assert invariant(z + 10, y).item() == pytest.approx(invariant(z, y).item(), rel=1e-10)


def test_gradient_is_the_finite_difference_where_no_maximum_is_detached() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: ACLS(4, margin=0.5, neg_lambda=0.0)(z, y), z)
