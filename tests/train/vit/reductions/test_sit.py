"""SiT: a learned soft assignment over all tokens after the prefix."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from calibrant.train.vit.reductions.sit import SiT
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.tokens import Tokens

X = torch.tensor([[[9.0, 9.0], [0.0, 2.0], [4.0, 0.0]]])


def slimmer() -> SiT:
    sit = SiT(Stage(0, (0.5,)), dim=2, patches=2)
    with torch.no_grad():
        for layer in (sit.fc1, sit.fc2):
            layer.weight.zero_()
            layer.bias.zero_()
    return sit


def test_without_an_opinion_the_output_is_the_mean_of_unnormalised_tokens(layer: Any) -> None:
    out = slimmer()(layer(), Tokens(X, 1), 2)
    torch.testing.assert_close(out.x, torch.tensor([[[9.0, 9.0], [2.0, 1.0]]]))


def test_shares_are_a_softmax_over_tokens_of_the_scaled_scores_by_hand(layer: Any) -> None:
    """LN gives (-1, 1) and (1, -1); fc1 takes the first number, fc2 hands it on: scores gelu(-1), gelu(1) times 3."""
    sit = slimmer()
    with torch.no_grad():
        sit.fc1.weight.copy_(torch.tensor([[1.0, 0.0]]))
        sit.fc2.weight.fill_(1.0)
        sit.scale.fill_(3.0)
    low, high = (3 * float(F.gelu(torch.tensor(v))) for v in (-1.0, 1.0))
    share = math.exp(high) / (math.exp(high) + math.exp(low))
    out = sit(layer(), Tokens(X, 1), 2)
    expected = (1 - share) * X[0, 1] + share * X[0, 2]
    torch.testing.assert_close(out.x[0, 1], expected, rtol=0, atol=1e-4)
