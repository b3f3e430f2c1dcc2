"""ToMe: pairs of similar tokens become their average, weighted by how many tokens each stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibrant.train.vit import reduce_tokens
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.reductions.tome import ToMe, merge_pairs
from calibrant.train.vit.tokens import Tokens

# Tokens leaving blocks 3, 6 and 9 with the class token (spec/clca.md 5): no cache, and CLCA, whose cache appends six
# tokens after each of them.
COUNTS = {
    (196, 0.1): ((99, 81, 80), (100, 88, 93)), (196, 0.25): ((99, 62, 53), (100, 69, 66)),
    (196, 0.5): ((99, 50, 26), (100, 57, 38)), (196, 0.9): ((177, 159, 143), (178, 166, 156)),
    (784, 0.1): ((393, 322, 315), (394, 329, 328)), (784, 0.25): ((393, 246, 209), (394, 253, 222)),
}  # fmt: skip


@pytest.mark.parametrize(("patches", "rate"), COUNTS)
def test_counts_of_the_papers_code(patches: int, rate: float) -> None:
    """At keep 0.1 the last stage merges one more: the plan 19, 1, 0 may fall to 0, since tokens are left anyway."""
    stages = [ToMe(Stage(s, (rate,) * 3)) for s in range(3)]
    for cache, expected in zip((0, 1), COUNTS[patches, rate], strict=True):
        count, left = patches + cache, []
        for stage in stages:
            count = stage.leaves(count, patches, 0)
            left.append(1 + count)
            count += 6 * cache
        assert tuple(left) == expected


@pytest.mark.parametrize("prefix", [1, 2, 3, 5])
def test_one_token_is_left_however_many_are_to_go(prefix: int) -> None:
    stage = ToMe(Stage(0, (1e-6,)), repeat=True)
    assert [count - sum(stage.steps(count, 1000, prefix)) for count in range(1, 40)] == [1] * 39


def test_tome_averages_by_size_by_hand() -> None:
    x = torch.tensor([[[9.0], [1.0], [1.0], [5.0], [3.0], [7.0]]])
    size = torch.tensor([[1.0, 1.0, 3.0, 1.0, 1.0, 2.0]])
    metric = torch.tensor([[[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [1.0, 1.0], [-1.0, 0.0]]])
    t, _ = merge_pairs(Tokens(x, 1, size=size), metric, 1)
    # Token 2 (value 1, size 3) goes into token 3 (value 5, size 1): (3 * 1 + 1 * 5) / 4 = 2.
    assert t.x.flatten().tolist() == [9.0, 3.0, 1.0, 2.0, 7.0]
    assert t.size is not None
    assert t.size.flatten().tolist() == [1.0, 1.0, 1.0, 4.0, 2.0]


def test_from_the_first_merge_on_keys_weigh_by_their_size(layer: Any) -> None:
    keys = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [-1.0, 0.5]])
    out = ToMe(Stage(0, (0.75,)))(layer(keys=keys), Tokens(torch.arange(5.0)[None, :, None], 1), 4)
    assert out.x.flatten().tolist() == [0, 4, 1, 2.5]  # 2 into 3; the rest of the even ones, then the odd ones
    bias = out.key_bias()
    assert bias is not None
    assert bias.exp().flatten().tolist() == pytest.approx([1, 1, 1, 2])


def test_tome_repeats_until_a_low_rate_is_reached(make_backbone: Callable[..., Any]) -> None:
    counts = {}
    images = torch.randn(2, 3, 56, 56, generator=torch.Generator().manual_seed(5))
    for repeat in (False, True):
        vit = make_backbone(img_size=56, depth=6)
        model = reduce_tokens(vit, "tome", keep_rate=0.25, locations=(1, 3), tome_repeat=repeat).eval()
        left: list[Tokens] = []
        model.tokens(images, lambda event, i, t, left=left: left.append(t) if event == "out" else None)
        counts[repeat] = [t.x.shape[1] for t in left]
        assert left[-1].size is not None
        torch.testing.assert_close(left[-1].size.sum(1), torch.full((2,), 50.0))  # nobody got lost
    assert counts[False] == [50, 26, 26, 17, 17, 17]  # 24 of 37, then 9
    assert counts[True] == [50, 13, 13, 4, 4, 4]  # 12 and 3 patches, as asked
