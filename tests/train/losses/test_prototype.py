"""Classification by distance to learned prototypes."""

from __future__ import annotations

import math

import pytest
import torch

from calibrant.errors import ConfigError
from calibrant.train.losses import Prototype


def test_prototype_scores_are_distances() -> None:
    loss = Prototype(2, 2, temperature=2.0)
    loss.prototypes.data = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    torch.testing.assert_close(loss.logits(torch.tensor([[0.0, 4.0]])), torch.tensor([[-8.0, -4.5]]))
    cosine = Prototype(2, 2, distance="cosine", temperature=0.5)
    cosine.prototypes.data = torch.tensor([[2.0, 0.0], [3.0, 4.0]])
    torch.testing.assert_close(cosine.logits(torch.tensor([[0.0, 4.0]])), torch.tensor([[0.0, 1.6]]))


def test_one_row_by_hand() -> None:
    """Scores -1 and -4 of the prototypes 0 and 3 at f = 1."""
    loss = Prototype(2, 1).double()
    loss.prototypes.data = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
    value = loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[1.0]], dtype=torch.float64))
    assert value.item() == pytest.approx(math.log1p(math.exp(-3)), rel=1e-12)


def test_an_unknown_distance_is_refused() -> None:
    with pytest.raises(ConfigError):
        Prototype(2, 2, distance="l1")  # type: ignore[arg-type]


def test_gradient_of_the_features_is_the_finite_difference() -> None:
    rng = torch.Generator().manual_seed(0)
    f = torch.randn(6, 3, dtype=torch.float64, generator=rng).requires_grad_()
    z, y = torch.zeros(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 0, 1])
    loss = Prototype(4, 3).double()
    assert torch.autograd.gradcheck(lambda f: loss(z, y, f), f)
