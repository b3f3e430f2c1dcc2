"""SiT: token slimming by a learned soft assignment."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.reductions.patchmerger import gathered
from calibrant.train.vit.reductions.stage import Reduction, Stage
from calibrant.train.vit.tokens import Tokens


class SiT(Reduction):
    """W = softmax over tokens of sigma (fc2 gelu fc1 LN z); output [prefix, W^T z], sigma one learned number.

    Everything after the prefix is mixed, learnable and cached tokens too. K = floor(P r^(s+1)) at construction.
    Source: Zong et al. 2022 (arXiv 2111.12624), spec/clca.md 4.7. Differs: K >= 1.
    """

    def __init__(self, stage: Stage, *, dim: int, patches: int) -> None:
        super().__init__(stage)
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.fc1 = nn.Linear(dim, dim // 2)
        self.fc2 = nn.Linear(dim // 2, stage.planned(patches))
        self.scale = nn.Parameter(torch.ones(1, 1, 1))

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Slim the block's input, then run the block."""
        z = t.x[:, t.prefix :]
        weight = (self.fc2(F.gelu(self.fc1(self.ln(z)))) * self.scale).transpose(1, 2).softmax(-1)
        return layer.whole(gathered(t, weight, z))

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """K."""
        return self.fc2.out_features

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """The two layers and the weighted sum."""
        return count * (dim * dim // 2 + dim // 2 * self.fc2.out_features + self.fc2.out_features * dim)
