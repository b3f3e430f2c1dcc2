"""The token sequence on its way through the blocks, and what travels with each token."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tokens:
    """x: (B, N, D), class token first, then registers (together `prefix` tokens, never reduced), patches, appended.

    suffix: learnable and cached tokens at the end that DPC-KNN leaves alone.
    size: (B, N), ToMe: how many tokens each one stands for.
    valid: (B, N) bool, ATS: False marks a padding slot that nobody may read.
    policy: (B, N), DynamicViT: decision so far, 1 = kept.
    ratio: DynamicViT in training: sum over stages of the squared distance from the wanted keep ratio.
    rope: (depth or 1, B or 1, heads or 1, N - prefix, 2 d), rotary table [sin, cos] of every token after the prefix.
    where: (B, P), only when someone watches: the token that now carries each patch, -1 = dropped.
    """

    x: Tensor
    prefix: int
    suffix: int = 0
    size: Tensor | None = None
    valid: Tensor | None = None
    policy: Tensor | None = None
    ratio: Tensor | None = None
    rope: Tensor | None = None
    where: Tensor | None = None

    @property
    def count(self) -> int:
        """Tokens after the prefix."""
        return self.x.shape[1] - self.prefix

    def with_x(self, x: Tensor) -> Tokens:
        """The same tokens with new features."""
        return replace(self, x=x)

    def take(self, index: Tensor) -> Tokens:
        """Prefix and the tokens `index` (B, K), numbered in the whole sequence, in that order."""
        where = None
        if self.where is not None:
            place = torch.arange(self.prefix, self.prefix + index.shape[1], device=index.device).expand_as(index)
            moved = index.new_full(self.x.shape[:2], -1).scatter(1, index, place)
            where = follow(self.where, moved)
        rope = self.rope
        if rope is not None:
            rope = _gather_rope(rope, index - self.prefix)
        return replace(
            self,
            x=torch.cat([self.x[:, : self.prefix], rows(self.x, index)], 1),
            size=self._take(self.size, index),
            valid=self._take(self.valid, index),
            policy=self._take(self.policy, index),
            rope=rope,
            where=where,
        )

    def _take(self, field: Tensor | None, index: Tensor) -> Tensor | None:
        if field is None:
            return None
        return torch.cat([field[:, : self.prefix], field.gather(1, index)], 1)

    def append(self, extra: Tensor, *, policy: float = 1.0) -> Tokens:
        """The tokens with `extra` (B, n, D) at the end: size 1, valid, not rotated."""
        b, n, _ = extra.shape
        size, valid, decision, rope = self.size, self.valid, self.policy, self.rope
        if size is not None:
            size = torch.cat([size, size.new_ones(b, n)], 1)
        if valid is not None:
            valid = torch.cat([valid, valid.new_ones(b, n)], 1)
        if decision is not None:
            decision = torch.cat([decision, decision.new_full((b, n), policy)], 1)
        if rope is not None:
            half = rope.shape[-1] // 2
            still = torch.cat([rope.new_zeros(n, half), rope.new_ones(n, half)], -1)  # sin 0, cos 1
            rope = torch.cat([rope, still.expand(*rope.shape[:3], n, 2 * half)], -2)
        x = torch.cat([self.x, extra], 1)
        return replace(self, x=x, size=size, valid=valid, policy=decision, rope=rope, suffix=self.suffix + n)

    def key_bias(self) -> Tensor | None:
        """(B, 1, 1, N) added to the attention logits of each key: log size (ToMe), or "never" for a padding slot."""
        if self.size is not None:
            return self.size.log()[:, None, None]
        if self.valid is not None:
            zero = torch.zeros_like(self.valid, dtype=self.x.dtype)
            return zero.masked_fill(~self.valid, torch.finfo(self.x.dtype).min)[:, None, None]
        return None

    def rotary(self, block: int) -> Tensor | None:
        """Rotary table of one block, (B or 1, heads or 1, N - prefix, 2 d)."""
        if self.rope is None:
            return None
        return self.rope[block if self.rope.shape[0] > 1 else 0]


def rows(x: Tensor, index: Tensor) -> Tensor:
    """x[b, index[b, k]] for x: (B, N, D) and index: (B, K)."""
    return x.gather(1, index[..., None].expand(-1, -1, x.shape[-1]))


def total(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """sum_n w[b, n] x[b, n], (B, 1, D), for x: (B, N, D) and weight: (B, N), 1 if not given.

    A matrix product, because it adds in one order whatever the batch: onnxruntime's ReduceSum and ReduceMean take
    another for a single image, and where tokens are chosen afterwards, one rounding can change the choice.
    """
    with torch.autocast(x.device.type, enabled=False):
        w = x.new_ones(1, 1, x.shape[1]) if weight is None else weight[:, None].to(x.dtype)
        return w @ x


def follow(where: Tensor, moved: Tensor) -> Tensor:
    """Compose "patch p sits in token where[p]" with "token j became token moved[j]"; -1 is gone for good."""
    return torch.where(where < 0, where, moved.gather(1, where.clamp_min(0)))


def _gather_rope(rope: Tensor, index: Tensor) -> Tensor:
    depth, _, heads, _, width = rope.shape
    b, k = index.shape
    table = rope.expand(depth, b, heads, -1, width)
    return table.gather(3, index[None, :, None, :, None].expand(depth, b, heads, k, width))
