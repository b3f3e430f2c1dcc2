"""Balanced contrastive loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train.losses import BalancedContrastive


def test_equals_the_formula_worked_out_elsewhere(golden: Callable[[str], Any], compare: Callable[..., None]) -> None:
    g = golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        f, y = g.tensor(f"{i}.bcl.features").requires_grad_(), g.labels(f"{i}.targets")
        z = torch.zeros(len(f), case["C"], dtype=torch.float64)
        loss = BalancedContrastive(case["C"], 12).double()
        loss.prototypes.data = g.tensor(f"{i}.bcl.prototypes")
        value = loss(z, y, f)
        value.backward()
        compare(value.detach(), f.grad, g, i, key="bcl.")


def test_one_row_and_two_prototypes_by_hand() -> None:
    """T = 1; the row (1, 0) of class 0, prototypes (1, 0) and (0, 1): the anchor does not count in its own class."""
    loss = BalancedContrastive(2, 2, temperature=1.0).double()
    loss.prototypes.data = torch.eye(2, dtype=torch.float64)
    value = loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert value.item() == pytest.approx(math.log(math.exp(1) + math.exp(0)) - 1, rel=1e-12)


def test_gradient_of_the_features_is_the_finite_difference() -> None:
    rng = torch.Generator().manual_seed(0)
    f = torch.randn(6, 3, dtype=torch.float64, generator=rng).requires_grad_()
    z, y = torch.zeros(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 0, 1])
    loss = BalancedContrastive(4, 3).double()
    assert torch.autograd.gradcheck(lambda f: loss(z, y, f), f)
