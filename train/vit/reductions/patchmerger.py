"""PatchMerger: learned queries gather the tokens into a fixed number."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.reductions.stage import Reduction, Stage
from calibrant.train.vit.tokens import Tokens, follow


class PatchMerger(Reduction):
    """z <- LN(z); output [prefix, softmax over tokens(Q z^T) z], Q: K x D learned, drawn from N(0, 1), no 1/sqrt(D).

    Everything after the prefix is mixed, learnable and cached tokens too. K = floor(P r^(s+1)) at construction.
    Source: Renggli et al. 2022 (arXiv 2202.12015), spec/clca.md 4.8. Differs: K >= 1.
    """

    def __init__(self, stage: Stage, *, dim: int, patches: int) -> None:
        super().__init__(stage)
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.queries = nn.Parameter(torch.randn(stage.planned(patches), dim))

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Gather on the block's input, then run the block."""
        z = self.ln(t.x[:, t.prefix :])
        return layer.whole(gathered(t, (self.queries @ z.transpose(1, 2)).softmax(-1), z))

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """K."""
        return len(self.queries)

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """Scores and weighted sums."""
        return 2 * count * len(self.queries) * dim


def gathered(t: Tokens, weight: Tensor, z: Tensor) -> Tokens:
    """[prefix, weight z]; weight: (B, K, n), rows sum to 1. A watcher is told the output that reads a token most."""
    x = torch.cat([t.x[:, : t.prefix], (weight @ z).to(t.x.dtype)], 1)
    where = t.where
    if where is not None:
        moved = torch.cat([where.new_zeros(len(x), t.prefix), weight.argmax(1) + t.prefix], 1)
        where = follow(where, moved)
    return replace(t, x=x, suffix=0, where=where)
