"""EViT: Top-K and one fused token."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from calibrant.train.vit.reductions.evit import EViT
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.tokens import Tokens


def test_dropped_tokens_go_on_as_their_weighted_sum(layer: Any) -> None:
    t = Tokens(torch.tensor([[[0.0], [10.0], [20.0], [30.0], [40.0]]]), 1)
    out = EViT(Stage(0, (0.5,)))(layer([4.0, 1.0, 3.0, 2.0, 6.0]), t, 4)
    kept, fused = out.x.flatten().tolist()[:-1], float(out.x[0, -1, 0])
    assert kept == [0, 40, 20]
    assert fused == pytest.approx((1 * 10 + 2 * 30) / 16, rel=1e-6)  # looks sum to 16; weights are not renormalised
    assert EViT(Stage(0, (0.5,))).leaves(4, 4, 0) == 3


def test_without_a_dropped_token_there_is_no_fused_one(layer: Any) -> None:
    t = Tokens(torch.zeros(1, 4, 1), 1)
    assert EViT(Stage(0, (0.9,)))(layer([1.0] * 4), t, 3).x.shape[1] == 4
    assert EViT(Stage(0, (0.9,))).leaves(3, 3, 0) == 3
