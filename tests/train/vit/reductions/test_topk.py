"""Top-K: the tokens that the class token looks at most, the most looked-at first."""

from __future__ import annotations

from typing import Any

import torch

from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.reductions.topk import TopK
from calibrant.train.vit.tokens import Tokens

LOOKS = [5.0, 1.0, 4.0, 2.0, 3.0, 0.5]


def tokens(n: int = 6) -> Tokens:
    return Tokens(torch.arange(float(n))[None, :, None], 1)


def test_the_most_looked_at_stay_in_falling_order(layer: Any) -> None:
    out = TopK(Stage(0, (0.5,)))(layer(LOOKS), tokens(), 5)
    assert out.x.flatten().tolist() == [0, 2, 4, 3]  # ceil(.5 * 5) = 3 of 1, 4, 2, 3, .5


def test_counts_are_of_the_tokens_there_and_rounded_up_in_double_precision() -> None:
    assert TopK(Stage(0, (0.55,))).leaves(100, 196, 0) == 56  # 0.55 * 100 = 55.000000000000007
    assert TopK(Stage(2, (0.1,) * 3)).leaves(2, 196, 0) == 1


def test_nothing_to_drop_leaves_order_and_tokens_alone(layer: Any) -> None:
    out = TopK(Stage(0, (0.9,)))(layer(LOOKS), tokens(), 5)
    assert out.x.flatten().tolist() == [0, 1, 2, 3, 4, 5]
