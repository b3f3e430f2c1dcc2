"""Centre loss: distance to the running centre of the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.losses import Center, MixedTarget


def test_equals_the_formula_worked_out_elsewhere(golden: Callable[[str], Any]) -> None:
    g = golden("spec_derived_simple")
    for i, case in enumerate(g.meta["cases"]):
        f, y = g.tensor(f"{i}.bcl.features"), g.labels(f"{i}.targets")
        loss = Center(case["C"], 12).double().eval()
        loss.centers.copy_(g.tensor(f"{i}.bcl.prototypes"))
        value = loss(torch.zeros(len(f), case["C"]), y, f)
        np.testing.assert_allclose(value.item(), g[f"{i}.center.loss"], rtol=1e-9)


@pytest.mark.parametrize(("rule", "moved"), [("published", 4 - 0.5 * 2 * 1 / 3), ("ema", 3.5)])
def test_centers_move_towards_the_mean_of_their_rows(rule: str, moved: float) -> None:
    """Center 4, rows 2 and 4, mean 3. published: .5 * sum(4 - f) / (1 + 2). The loss comes before the move."""
    loss = Center(2, 1, rate=0.5, rule=rule)
    loss.centers.copy_(torch.tensor([[4.0], [9.0]]))
    loss.seen.fill_(True)
    value = loss(torch.zeros(2, 2), torch.tensor([0, 0]), torch.tensor([[2.0], [4.0]]))
    assert value.item() == pytest.approx(0.5 * (4 + 0) / 2)
    assert loss.centers[:, 0].tolist() == pytest.approx([moved, 9.0])


def test_a_new_class_starts_at_the_mean_of_its_rows() -> None:
    loss = Center(2, 1, rate=0.0)
    loss(torch.zeros(2, 2), torch.tensor([1, 1]), torch.tensor([[2.0], [4.0]]))
    assert loss.centers[:, 0].tolist() == [0, 3]


def test_a_mixed_target_is_worth_the_same_dense_one() -> None:
    """Rows: class 0 mixed with itself, 1 and 2 in halves, class 1 alone. Values and moves of the centres alike."""
    lam = torch.tensor([0.5, 0.5, 1.0])
    mixed = MixedTarget(torch.tensor([0, 1, 1]), torch.tensor([0, 2, 0]), lam)
    dense = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0]])
    f = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]])
    losses = [Center(3, 2), Center(3, 2)]
    for _ in range(2):
        values = [loss(torch.zeros(3, 3), t, f).item() for loss, t in zip(losses, (mixed, dense), strict=True)]
        assert values[0] == pytest.approx(values[1], rel=1e-6)
        f = f + 1
    assert losses[0].seen.tolist() == losses[1].seen.tolist() == [True, True, False]
    torch.testing.assert_close(losses[0].centers, losses[1].centers)


def test_a_row_mixed_with_its_own_class_moves_the_centre() -> None:
    loss = Center(2, 1, rate=0.5, rule="ema")
    loss.seen.fill_(True)
    same = torch.tensor([1, 1])
    loss(torch.zeros(2, 2), MixedTarget(same, same, 0.3), torch.tensor([[2.0], [4.0]]))
    assert loss.centers[:, 0].tolist() == [0, 1.5]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError):
        Center(2, 1, rule="sgd")  # type: ignore[arg-type]


def test_gradient_of_the_features_is_the_finite_difference() -> None:
    rng = torch.Generator().manual_seed(0)
    f = torch.randn(6, 3, dtype=torch.float64, generator=rng).requires_grad_()
    z, y = torch.zeros(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 0, 1])
    loss = Center(4, 3).double().eval()
    loss.centers.normal_(generator=rng)
    assert torch.autograd.gradcheck(lambda f: loss(z, y, f), f)
