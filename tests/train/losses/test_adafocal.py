from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.train.losses import AdaFocal, create_loss


def test_gamma_one_everywhere_is_focal_loss() -> None:
    z, y = torch.randn(9, 4, dtype=torch.float64), torch.arange(9) % 4
    expected = create_loss("focal", num_classes=4, gamma=1.0)(z, y).item()
    assert AdaFocal(4)(z, y).item() == pytest.approx(expected, rel=1e-12)


def test_negative_gamma_by_hand() -> None:
    """p_y = .5, gamma -2: (1.5)^2 log 2."""
    loss = AdaFocal(2)
    loss.gamma.fill_(-2)
    value = loss(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]))
    assert value.item() == pytest.approx(2.25 * 0.6931471805599453)


def test_validation_moves_gamma_by_the_gap_of_each_equal_mass_bin() -> None:
    """Two bins of two rows. Low: confidence .6, both right, gap -.4. High: .9, one right, gap .4."""
    loss = AdaFocal(2, bins=2)
    confidence = torch.tensor([0.9, 0.6, 0.9, 0.6], dtype=torch.float64)
    probs = torch.stack([confidence, 1 - confidence], 1)
    loss.on_validation(probs, torch.tensor([0, 0, 1, 0]))
    e = torch.tensor([-0.4, 0.4], dtype=torch.float64)
    torch.testing.assert_close(loss.gamma, e.exp())
    assert loss.edges.tolist() == pytest.approx([0.75])


@pytest.mark.parametrize(
    ("gamma", "gap", "expected"), [(0.21, -0.5, -0.2), (-0.21, 0.5, 0.2), (15, 1, 20), (-1.9, -1, -2)]
)
def test_small_gamma_changes_sign_and_large_gamma_is_clipped(gamma: float, gap: float, expected: float) -> None:
    loss = AdaFocal(2, bins=1)
    loss.gamma.fill_(gamma)
    loss.move(torch.tensor([gap]))
    assert loss.gamma.item() == pytest.approx(expected)


def test_rows_fall_into_the_bin_of_the_true_class_probability() -> None:
    loss = AdaFocal(2, bins=2, reduction="none")
    loss.gamma.copy_(torch.tensor([3.0, 1.0]))
    p = torch.tensor([0.2, 0.8], dtype=torch.float64)
    z = torch.stack([p, 1 - p], 1).log()
    expected = (1 - p).pow(torch.tensor([3.0, 1.0])) * -p.log()
    torch.testing.assert_close(loss(z, torch.tensor([0, 0])), expected)


def test_few_validation_rows_leave_empty_bins_alone() -> None:
    loss = AdaFocal(2)
    loss.on_validation(torch.tensor([[0.7, 0.3], [0.6, 0.4]]), torch.tensor([0, 0]))
    assert torch.isfinite(loss.gamma).all()
    assert (loss.edges.diff() >= 0).all()
    assert loss.gamma[2:].tolist() == [1.0] * 13


def test_adafocal_value_and_next_gamma(golden: Callable[[str], Any], compare: Callable[..., None]) -> None:
    g = golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        loss = create_loss("adafocal", num_classes=case["C"])
        loss.gamma.copy_(g.tensor(f"{i}.ada.gamma"))
        z = g.tensor(f"{i}.logits").requires_grad_()
        value = loss(z, g.labels(f"{i}.targets"))
        value.backward()
        compare(value.detach(), z.grad, g, i, key="adafocal.")
        loss.move(g.tensor(f"{i}.ada.gap"))
        np.testing.assert_allclose(loss.gamma, g[f"{i}.ada.gamma_next"], atol=1e-12)
