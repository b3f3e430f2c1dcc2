"""DynamicViT: the tokens that a small network keeps; masks and a ratio error in training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from calibrant.train.vit.reductions.dynamicvit import DynamicViT
from calibrant.train.vit.reductions.stage import Stage
from calibrant.train.vit.tokens import Tokens


def scored(stage: Stage, scores: list[float]) -> DynamicViT:
    """A stage whose network gives these scores for "keep" and 0 for "drop"."""
    reduction = DynamicViT(stage, dim=4)
    keep = torch.tensor(scores)

    def log_keep(z: Tensor, p: Tensor) -> Tensor:
        return torch.stack([keep, torch.zeros_like(keep)], -1)[None].log_softmax(-1).expand(len(z), -1, -1)

    reduction.log_keep = log_keep  # type: ignore[method-assign]
    return reduction


def tokens(n: int) -> Tokens:
    return Tokens(torch.arange(n + 1.0)[None, :, None].expand(1, n + 1, 4), 1)


def test_evaluation_keeps_the_highest_scores_in_falling_order(layer: Any) -> None:
    out = scored(Stage(0, (0.5,)), [1.0, 4.0, 2.0, 3.0]).eval()(layer(), tokens(4), 4)
    assert out.x[0, :, 0].tolist() == [0, 2, 4]


def test_counts_with_a_cache_are_of_the_tokens_there() -> None:
    assert DynamicViT(Stage(1, (0.5, 0.5)), dim=4).leaves(98, 196, 0) == 49  # floor(196 r^2)
    assert DynamicViT(Stage(1, (0.5, 0.5), cached=True), dim=4).leaves(104, 196, 6) == 51  # floor((104 - 1) r)
    assert DynamicViT(Stage(0, (0.1,), cached=True), dim=4).leaves(3, 196, 2) == 1


def test_training_masks_and_adds_the_squared_ratio_error(layer: Any) -> None:
    """Scores +-9 without noise: tokens 1 and 2 of 4 stay, a ratio of .5 where .25 is wanted."""
    reduction = scored(Stage(0, (0.25,)), [9.0, 9.0, -9.0, -9.0]).train()
    reduction.noise = torch.zeros_like
    out = reduction(layer(), tokens(4), 4)
    assert out.x.shape[1] == 5
    assert out.policy is not None
    assert out.policy[0].tolist() == [1, 1, 1, 0, 0]
    assert out.ratio is not None
    assert float(out.ratio) == pytest.approx((0.5 - 0.25) ** 2, rel=1e-6)


def test_a_token_dropped_before_stays_dropped(layer: Any) -> None:
    reduction = scored(Stage(0, (0.5,)), [9.0, 9.0]).train()
    reduction.noise = torch.zeros_like
    before = Tokens(torch.zeros(1, 3, 4), 1, policy=torch.tensor([[1.0, 0.0, 1.0]]))
    out = reduction(layer(), before, 2)
    assert out.policy is not None
    assert out.policy[0].tolist() == [1, 0, 1]


def test_the_global_half_is_the_mean_of_what_is_kept() -> None:
    """With fc_in = identity on the second half and everything else 0 but fc1's read of that half, the decision follows
    the policy-weighted mean: tokens that the policy dropped must not move it.
    """
    reduction = DynamicViT(Stage(0, (0.5,)), dim=8).eval()
    z = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    moved = z.clone()
    moved[0, 2] = torch.linspace(3, -5, 8)
    p = torch.tensor([[1.0, 1.0, 0.0]])
    with torch.no_grad():
        same, other = reduction.log_keep(z, p)[:, :2], reduction.log_keep(moved, p)[:, :2]
        torch.testing.assert_close(same, other, rtol=0, atol=0)
        assert not torch.equal(reduction.log_keep(z, torch.ones(1, 3))[:, :2],
                               reduction.log_keep(moved, torch.ones(1, 3))[:, :2])  # fmt: skip
