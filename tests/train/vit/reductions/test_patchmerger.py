"""PatchMerger: learned queries gather normalised tokens."""

from __future__ import annotations

import math
from typing import Any

import torch

from calibrant.train.vit.reductions.patchmerger import PatchMerger
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.tokens import Tokens


def test_one_query_by_hand(layer: Any) -> None:
    """LN of (0, 2) is (-1, 1), of (2, 0) is (1, -1); the query (q, 0) sees -q and q."""
    merger = PatchMerger(Stage(0, (0.5,)), dim=2, patches=2)
    with torch.no_grad():
        merger.queries.copy_(torch.tensor([[0.5, 0.0]]))
    t = Tokens(torch.tensor([[[7.0, 7.0], [0.0, 2.0], [2.0, 0.0]]]), 1)
    out = merger(layer(), t, 2)
    share = math.exp(0.5) / (math.exp(0.5) + math.exp(-0.5))  # of the second token
    expected = torch.tensor([[[7.0, 7.0], [2 * share - 1, 1 - 2 * share]]])
    torch.testing.assert_close(out.x, expected, rtol=0, atol=2e-5)  # eps of the norm is 1e-5
    assert out.suffix == 0


def test_count_is_of_the_patches_of_the_image_whatever_is_there() -> None:
    merger = PatchMerger(Stage(1, (0.5, 0.5)), dim=4, patches=196)
    assert merger.leaves(300, 196, 100) == 49
