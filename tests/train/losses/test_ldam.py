"""LDAM: a margin that is larger for rare classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.train.losses import LDAM, create_loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_ldam_equals_the_authors_code(
    dtype: torch.dtype, golden: Callable[[str], Any], compare: Callable[..., None]
) -> None:
    g = golden("ldam")
    for i, case in enumerate(g.meta["cases"]):
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        weighted = case["beta"] is not None
        loss = create_loss("ldam", num_classes=case["C"], class_counts=g[f"{i}.counts"], drw=weighted, drw_start=0.0)
        value = loss(z, g.labels(f"{i}.targets"))
        value.backward()
        compare(value.detach(), z.grad, g, i)
        np.testing.assert_allclose(loss.margins, g[f"{i}.margins"], rtol=1e-12)
        if weighted:
            np.testing.assert_allclose(loss.weights, g[f"{i}.weights"], rtol=1e-9)


def test_margins_by_hand() -> None:
    """n^(-1/4) of 16 and 1 is 1/2 and 1; the rarest class has the whole margin, and only the true logit pays it."""
    loss = LDAM(2, [16, 1], max_margin=0.4, scale=2.0, drw=False)
    assert loss.margins.tolist() == pytest.approx([0.2, 0.4])
    value = loss(torch.tensor([[0.5, 0.1]], dtype=torch.float64), torch.tensor([0]))
    assert value.item() == pytest.approx(math.log1p(math.exp(2 * (0.1 - (0.5 - 0.2)))), rel=1e-6)
    assert loss.adjust_logits(torch.tensor([[0.5, 0.1]])).tolist() == [[1.0, pytest.approx(0.2)]]


def test_weights_set_in_at_their_share_of_the_epochs() -> None:
    loss = LDAM(2, [30, 10], drw_start=0.8)
    loss.on_epoch_start(7, 10)
    assert loss.weights.tolist() == [1, 1]
    loss.on_epoch_start(8, 10)
    assert loss.weights[1] / loss.weights[0] == pytest.approx(3, rel=2e-3)  # beta .9999: nearly 1/n


def test_gradient_is_the_finite_difference() -> None:
    z = (torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 0.5).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: LDAM(4, [50, 30, 12, 1], drw_start=0.0)(z, y), z)
