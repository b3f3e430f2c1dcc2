"""The cross-layer cache: tokens set aside after each block and given back after the next reduction."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant.train.vit.tokens import Tokens, total


class CrossLayerCache(nn.Module):
    """n learnable CLR tokens travel at the end of the sequence; every block's output leaves a copy of them, and the
    mean of the pooled tokens, in a list that the recovery blocks Q append to the sequence.

    After block i with output x of N tokens: (1) if i in Q: m <- N, append the list in order, empty it; (2) if
    i < max Q: push mean(x[1:m]) (without registers; with the class token if pool_class) and the last n tokens of x.
    Q = locations and, with late recovery, block L - 2. Nothing is detached. n may be 0: then means alone are kept.
    Source: Rios et al. 2025, spec/clca.md 3. Differs: padding slots of ATS do not count in the mean.
    """

    def __init__(
        self,
        class_token: Tensor,
        tokens: int,
        recovery: tuple[int, ...],
        *,
        positions: bool,
        pool: bool,
        pool_class: bool,
    ) -> None:
        super().__init__()
        self.tokens, self.recovery, self.pool, self.pool_class = tokens, recovery, pool, pool_class
        if tokens == 0:
            return
        self.clr = nn.Parameter(class_token.detach().expand(1, tokens, -1).clone())
        self.clr_pos = nn.Parameter(torch.randn_like(self.clr) * 0.02) if positions else None

    def start(self, batch: int) -> Tensor:
        """The CLR tokens with their position rows, (B, n, D)."""
        clr = self.clr if self.clr_pos is None else self.clr + self.clr_pos
        return clr.expand(batch, -1, -1)

    def after(self, t: Tokens, i: int, store: Store) -> Tokens:
        """Recovery, then write, after block i."""
        if i in self.recovery:
            store.pooled = t.x.shape[1]
            if store.held:
                t = t.append(torch.cat(store.held, 1), policy=1.0 if t.ratio is not None else 0.0)
                store.held = []
        if i < self.recovery[-1]:
            if self.pool:
                store.held.append(self._mean(t, store.pooled))
            if self.tokens:
                store.held.append(t.x[:, -self.tokens :])
        return t

    def _mean(self, t: Tokens, end: int) -> Tensor:
        start = 0 if self.pool_class else t.prefix
        x = t.x[:, start:end]
        if t.valid is None:
            return total(x) / x.shape[1]
        weight = t.valid[:, start:end].to(x.dtype)
        return total(x, weight) / weight.sum(1)[:, None, None]


class Store:
    """State of one forward pass: tokens held, and how many leading tokens are pooled."""

    def __init__(self, pooled: int) -> None:
        self.held: list[Tensor] = []
        self.pooled = pooled
