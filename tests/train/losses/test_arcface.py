"""ArcFace: a margin on the angle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from calibrant.errors import ConfigError
from calibrant.train.losses import ArcFace, CosineHead, create_loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_arcface_equals_pytorch_metric_learning(dtype: torch.dtype, golden: Callable[[str], Any]) -> None:
    g = golden("arcface")
    double = dtype == torch.float64
    for i, case in enumerate(g.meta["cases"]):
        f = g.tensor(f"{i}.features", dtype).requires_grad_()
        head = CosineHead(case["D"], case["C"]).to(dtype)
        head.weight.data = g.tensor(f"{i}.W", dtype).T.contiguous()
        margin = math.radians(case["margin_degrees"])
        loss = create_loss("arcface", num_classes=case["C"], margin=margin, scale=case["scale"])
        value = loss(head(f), g.labels(f"{i}.targets"))
        value.backward()
        np.testing.assert_allclose(value.item(), g[f"{i}.loss"], rtol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(f.grad, g[f"{i}.grad_features"], atol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(head.weight.grad.T, g[f"{i}.grad_W"], atol=1e-6 if double else 1e-4)
        np.testing.assert_allclose(loss.adjust_logits(head(f)).detach(), g[f"{i}.infer_logits"], atol=2e-5)


def test_arcface_target_logit_falls_as_the_angle_grows_over_the_whole_circle() -> None:
    """Without the branch past pi - m it would rise again, and the loss would fall."""
    theta = torch.linspace(0, math.pi, 400, dtype=torch.float64)
    z = torch.stack([theta.cos(), torch.zeros_like(theta)], 1)
    value = ArcFace(2, margin=0.5, scale=5.0, reduction="none")(z, torch.zeros(400).long())
    assert (value.diff() > 0).all()


def test_arcface_without_margin_is_scaled_cross_entropy() -> None:
    z, y = torch.rand(5, 3, dtype=torch.float64) * 1.8 - 0.9, torch.tensor([0, 1, 2, 0, 1])
    value = ArcFace(3, margin=0.0, scale=7.0)(z, y)
    assert value.item() == pytest.approx(F.cross_entropy(7 * z, y).item(), rel=1e-12)


def test_one_row_by_hand() -> None:
    """Angles of 60 and 90 degrees, margin 30 degrees: the target's cosine becomes cos 90 = 0."""
    z = torch.tensor([[0.5, 0.0]], dtype=torch.float64)
    value = ArcFace(2, margin=math.pi / 6, scale=3.0)(z, torch.tensor([0]))
    assert value.item() == pytest.approx(math.log(2), rel=1e-9)


def test_gradient_is_the_finite_difference() -> None:
    z = (torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1.6 - 0.8).requires_grad_()
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    assert torch.autograd.gradcheck(lambda z: ArcFace(4, scale=5.0)(z, y), z)


def test_a_margin_past_a_right_angle_is_refused() -> None:
    with pytest.raises(ConfigError):
        ArcFace(2, margin=2.0)
