"""A block that does nothing, so that what a reduction does to the tokens stands alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from calibrant.train.vit.attention import Heads
from calibrant.train.vit.tokens import Tokens


@dataclass
class StillLayer:
    """Attention adds nothing; the class token looks at token j in proportion to `looks[j]`, keys are `keys`."""

    looks: list[float] | None = None
    keys: Tensor | None = None  # (N, d)
    values: Tensor | None = None  # (N, d)

    def whole(self, t: Tokens) -> Tokens:
        return t

    def project(self, t: Tokens) -> Heads:
        n = t.x.shape[1]
        keys = torch.tensor(self.looks).log()[:, None] if self.looks is not None else self.keys
        assert keys is not None
        values = torch.ones(n, 1) if self.values is None else self.values
        q = torch.ones(1, 1, n, keys.shape[1])
        return Heads(q, keys.t()[None, None], values[None, None], 1.0, t.x)

    def attend(self, heads: Heads, bias: Tensor | None, query: Tensor | None = None) -> Tensor:
        return torch.zeros_like(heads.q if query is None else query)

    def add_attention(self, x: Tensor, mixed: Tensor, y: Tensor) -> Tensor:
        return x

    def feed_forward(self, t: Tokens) -> Tokens:
        return t


@pytest.fixture
def layer() -> type[StillLayer]:
    return StillLayer
