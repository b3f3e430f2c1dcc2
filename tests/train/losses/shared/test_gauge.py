"""A gauge takes away what a row's logits have in common, and changes no probability."""

from __future__ import annotations

import pytest
import torch

from calibrant.artifacts.card_checks import GAUGES
from calibrant.errors import ModelError
from calibrant.train.losses.shared.gauge import gauged

Z = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 0.0]], dtype=torch.float64)


def test_each_gauge_by_hand() -> None:
    assert gauged(Z, "none").tolist() == Z.tolist()
    assert gauged(Z, "mean")[0].tolist() == [-2, -1, 3]
    assert gauged(Z, "max")[0].tolist() == [-5, -4, 0]
    assert gauged(Z, "logsoftmax")[1].exp().tolist() == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("gauge", GAUGES)
def test_no_probability_changes(gauge: str) -> None:
    assert torch.allclose(gauged(Z, gauge).softmax(1), Z.softmax(1))


@pytest.mark.parametrize("gauge", [g for g in GAUGES if g != "none"])
def test_a_common_shift_of_a_row_makes_no_difference(gauge: str) -> None:
    assert torch.allclose(gauged(Z + 7, gauge), gauged(Z, gauge))


def test_an_unknown_one_is_refused_and_not_passed_over() -> None:
    with pytest.raises(ModelError, match="did you mean"):
        gauged(Z, "maximum")
