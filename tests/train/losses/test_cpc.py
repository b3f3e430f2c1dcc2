"""CPC: pairwise constraints on logits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train.losses import CPC, create_loss
from calibrant.train.losses.cpc import binary_discrimination, binary_exclusion


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_formula_worked_out_elsewhere_for_discrimination(
    dtype: torch.dtype, derived: Callable[..., None]
) -> None:
    derived("cpc_bdc", lambda c, g, i: lambda z, y: binary_discrimination(z, y).mean(), dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equals_the_formula_worked_out_elsewhere_for_exclusion(
    dtype: torch.dtype, derived: Callable[..., None]
) -> None:
    derived("cpc_bec", lambda c, g, i: lambda z, y: binary_exclusion(z, y).mean(), dtype)


def test_cpc_is_cross_entropy_and_both_terms(golden: Callable[[str], Any]) -> None:
    g = golden("spec_derived_simple")
    z, y = g.tensor("1.logits"), g.labels("1.targets")
    value = create_loss("cpc", num_classes=10, l1=2.0, l2=0.5)(z, y).item()
    ce = create_loss("ce", num_classes=10)(z, y).item()
    assert value == pytest.approx(ce + 2 * g["1.cpc_bdc.loss"] + 0.5 * g["1.cpc_bec.loss"], rel=1e-12)


def test_cpc_pairs_in_pieces_equal_pairs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = torch.randn(7, 6, dtype=torch.float64, requires_grad=True), torch.arange(7) % 6
    whole = binary_exclusion(z, y)
    (grad,) = torch.autograd.grad(whole.square().sum(), z)
    monkeypatch.setattr("calibrant.train.losses.cpc._PAIRS_AT_ONCE", 50)
    pieces = binary_exclusion(z, y)
    torch.testing.assert_close(pieces, whole)
    torch.testing.assert_close(torch.autograd.grad(pieces.square().sum(), z)[0], grad)


def test_cpc_of_equal_logits_is_log_two() -> None:
    """BDC = log 2, BEC = .5 log 2, whatever the number of classes; two classes have no pair left for BEC."""
    for c, bec in ((5, 0.5), (2, 0.0)):
        value = CPC(c)(torch.zeros(3, c, dtype=torch.float64), torch.tensor([0, 1, 1]))
        assert value.item() == pytest.approx(math.log(c) + (1 + bec) * math.log(2), rel=1e-12)


def test_gradient_is_the_finite_difference() -> None:
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: CPC(4)(z, y), z)
