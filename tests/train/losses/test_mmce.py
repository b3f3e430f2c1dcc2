"""MMCE: a kernel estimate of the calibration error of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from calibrant.train.losses import MMCE, create_loss
from calibrant.train.losses.shared.target import Labels


def logits(*p: float) -> torch.Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_mmce_term_equals_the_authors_code(
    weighted: bool, dtype: torch.dtype, golden: Callable[[str], Any], compare: Callable[..., None]
) -> None:
    g = golden("mmce_weighted" if weighted else "mmce")
    for i, _ in enumerate(g.meta["cases"]):
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        loss = create_loss("mmce", num_classes=z.shape[1], weighted=weighted)
        rows, y = z.movedim(1, -1).reshape(-1, z.shape[1]), g.labels(f"{i}.targets").flatten()
        value = loss.term(rows.log_softmax(1), Labels(hard=y))
        value.backward()
        compare(value.detach(), z.grad, g, i)
        ce = create_loss("ce", num_classes=z.shape[1])
        whole = loss(z.detach(), g.labels(f"{i}.targets")) - ce(z.detach(), g.labels(f"{i}.targets"))
        assert whole.item() == pytest.approx((2 if weighted else 1) * value.item(), abs=1e-5)


def test_mmce_by_hand() -> None:
    """Confidences .9 (right) and .6 (wrong): gaps .1 and -.6, kernel exp(-.3/.4)."""
    z = torch.cat([logits(0.9, 0.1), logits(0.6, 0.4)])
    y = torch.tensor([0, 1])
    term = (0.01 + 0.36 - 2 * 0.06 * math.exp(-0.75)) / 4
    assert MMCE(2)(z, y).item() == pytest.approx(F.cross_entropy(z, y).item() + term, rel=1e-12)
    assert MMCE(2, weighted=True)(z[:1], y[:1]).item() == pytest.approx(-math.log(0.9))


def test_gradient_of_the_term_is_the_finite_difference_with_correctness_constant() -> None:
    z = (5 * torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    for weighted in (False, True):
        assert torch.autograd.gradcheck(lambda z, w=weighted: MMCE(4, weighted=w)(z, y), z)
