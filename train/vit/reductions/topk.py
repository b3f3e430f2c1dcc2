"""Top-K: keep the tokens that the class token looks at most (EViT without its fused token)."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.reductions.stage import Reduction
from calibrant.train.vit.tokens import Tokens, total


class TopK(Reduction):
    """x <- [x_0, x_idx], idx = the K = ceil(r n) largest a, descending, between attention and MLP of the block.

    a: mean over heads of the class token's attention row without its prefix columns, not renormalised; n: tokens after
    the prefix, learnable and cached ones included. Source: spec/clca.md 4.1.
    Differs: nothing to drop is a no-op (the reference crashes on an undefined variable).
    """

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Attend, drop, then the MLP on the survivors."""
        heads = layer.project(t)
        seen = t.with_x(layer.add_attention(t.x, layer.attend(heads, t.key_bias()), heads.y))
        keep = self.kept(t.count)
        if keep < t.count:
            row = heads.class_row(t.key_bias())
            a = (total(row) / row.shape[1])[:, 0, t.prefix :]
            seen = self.drop(seen, a, keep)
        return layer.feed_forward(seen)

    def kept(self, count: int) -> int:
        """Tokens that survive as themselves."""
        return min(count, self.stage.relative(count))

    def drop(self, t: Tokens, a: Tensor, keep: int) -> Tokens:
        """The K tokens of largest a."""
        return t.take(torch.topk(a, keep, 1).indices + t.prefix)

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """K."""
        return self.kept(count)
