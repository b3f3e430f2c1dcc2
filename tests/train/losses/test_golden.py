"""Losses on logits against the authors' code. Tolerances: the golden gradients are stored as float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.train.losses import create_loss

LOGIT_LOSSES = ["ls", "mbls", "acls", "focal", "flsd53"]


def check(value: torch.Tensor, grad: torch.Tensor, golden: Any, i: int, *, key: str = "") -> None:
    double = value.dtype == torch.float64
    np.testing.assert_allclose(value.item(), golden[f"{i}.{key}loss"], rtol=1e-6 if double else 1e-4, atol=1e-30)
    np.testing.assert_allclose(grad.numpy(), golden[f"{i}.{key}grad"], rtol=0, atol=1e-6 if double else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", LOGIT_LOSSES)
def test_equals_the_authors_code(name: str, dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden(name)
    reduction = "sum" if "sum" in g.meta["params"].get("reduction", "") else "mean"
    seen = 0
    for i, case in enumerate(g.meta["cases"]):
        if "QUIRK" in case["kind"]:
            continue
        z = g.tensor(f"{i}.logits", dtype).requires_grad_()
        value = create_loss(name, num_classes=z.shape[1], reduction=reduction)(z, g.labels(f"{i}.targets"))
        value.backward()
        check(value.detach(), z.grad, g, i)
        seen += 1
    assert seen >= 5


@pytest.mark.parametrize("name", ["mbls", "acls"])
def test_ignored_rows_leave_the_penalty_too(name: str, golden: Callable[[str], Any]) -> None:
    """The authors keep them there: the golden case differs from ours, and ours is the loss without those rows."""
    g = golden(name)
    z, y = g.tensor("5.logits"), g.labels("5.targets")
    keep = y != -100
    assert 0 < keep.sum() < len(y)
    loss = create_loss(name, num_classes=z.shape[1])
    assert loss(z, y).item() == pytest.approx(loss(z[keep], y[keep]).item(), rel=1e-14)
    assert abs(loss(z, y).item() - g["5.loss"]) > 1e-4
