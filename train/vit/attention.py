"""The parts of a block, so that a reduction can step in between them.

A block that does not reduce is called whole. Only a block that has to show its attention, its keys or its values, or
that attends under a training mask, is taken apart here; every weight, norm, dropout and scale stays timm's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from timm.layers import apply_rot_embed_cat
from timm.models.eva import EvaBlock, EvaBlockPostNorm
from timm.models.vision_transformer import ResPostBlock
from torch import Tensor
from torch.nn import functional as F

from calibrant.train.vit.tokens import Tokens

EPSILON = 1e-6


@dataclass(frozen=True)
class Heads:
    """q, v: (B, H, N, d) and k_t: (B, H, d, N), normalised and rotated; the logits are `scale` q k_t.

    y: (B, N, D), what they were made from.
    """

    q: Tensor
    k_t: Tensor
    v: Tensor
    scale: float
    y: Tensor

    def class_row(self, bias: Tensor | None = None) -> Tensor:
        """Attention of the class token per head after softmax, (B, H, N)."""
        q = self.q[:, :, :1]
        logits = (q if self.scale == 1.0 else q * self.scale) @ self.k_t
        if bias is not None:
            logits = logits + bias
        return logits.softmax(-1)[:, :, 0]


class Layer(Protocol):
    """One block as a reduction sees it."""

    def whole(self, t: Tokens) -> Tokens:
        """The block without a reduction."""

    def project(self, t: Tokens) -> Heads:
        """Queries, keys and values."""

    def attend(self, heads: Heads, bias: Tensor | None, query: Tensor | None = None) -> Tensor:
        """softmax(scale q k_t + bias) v, (B, H, N, d); `query` replaces q where only some rows are wanted."""

    def add_attention(self, x: Tensor, mixed: Tensor, y: Tensor) -> Tensor:
        """x + drop-path(scale(projection(mixed))) for the rows that x has; y: those rows of the normalised input."""

    def feed_forward(self, t: Tokens) -> Tokens:
        """The MLP half."""


class TimmLayer:
    """Block number i of a timm network."""

    def __init__(self, block: Any, i: int) -> None:
        self.block, self.i = block, i
        self.post_norm = isinstance(block, (ResPostBlock, EvaBlockPostNorm))

    def whole(self, t: Tokens) -> Tokens:
        """As timm runs it; under a DynamicViT training mask, with the masked softmax."""
        if t.ratio is not None and t.policy is not None:
            heads = self.project(t)
            mixed = _masked_attention(self.block.attn, heads, t.policy)
            return self.feed_forward(t.with_x(self.add_attention(t.x, mixed, heads.y)))
        bias = t.key_bias()
        if isinstance(self.block, (EvaBlock, EvaBlockPostNorm)):
            return t.with_x(self.block(t.x, rope=t.rotary(self.i), attn_mask=bias))
        return t.with_x(self.block(t.x, attn_mask=bias))

    def project(self, t: Tokens) -> Heads:
        """Queries, keys and values."""
        attn = self.block.attn
        y = t.x if self.post_norm else self.block.norm1(t.x)
        b, n, _ = y.shape
        groups = getattr(attn, "num_kv_groups", 1)
        if attn.qkv is not None:
            z = attn.qkv(y)
            if getattr(attn, "q_bias", None) is not None:
                z = z + torch.cat((attn.q_bias, attn.k_bias, attn.v_bias))
            q, k, v = z.reshape(b, n, 3, attn.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        else:
            kv_heads = attn.num_heads // groups
            q = attn.q_proj(y).reshape(b, n, attn.num_heads, -1).transpose(1, 2)
            k = attn.k_proj(y).reshape(b, n, kv_heads, -1).transpose(1, 2)
            v = attn.v_proj(y).reshape(b, n, kv_heads, -1).transpose(1, 2)
        q, k = attn.q_norm(q), attn.k_norm(k)
        rope = t.rotary(self.i)
        if rope is not None:
            half = getattr(attn, "rotate_half", False)
            q, k = (rotate(u, rope, t.prefix, half).type_as(v) for u in (q, k))
        if groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        return Heads(q, k.transpose(-2, -1), v, attn.scale, y)

    def attend(self, heads: Heads, bias: Tensor | None, query: Tensor | None = None) -> Tensor:
        """Scaled dot-product attention with timm's dropout."""
        attn = self.block.attn
        q = heads.q if query is None else query
        k = heads.k_t.transpose(-2, -1)
        dropout = attn.attn_drop.p if attn.training else 0.0
        return F.scaled_dot_product_attention(q, k, heads.v, attn_mask=bias, dropout_p=dropout, scale=heads.scale)

    def add_attention(self, x: Tensor, mixed: Tensor, y: Tensor) -> Tensor:
        """The attention half of the block from its mixed values."""
        attn = self.block.attn
        b, h, n, d = mixed.shape
        out = attn.norm(mixed.transpose(1, 2).reshape(b, n, h * d))
        if getattr(attn, "gate", None) is not None:
            out = out * attn.gate(y).sigmoid()
        out = attn.proj_drop(attn.proj(out))
        added: Tensor = x + self.block.drop_path1(self._scaled(out, 1))
        return added

    def feed_forward(self, t: Tokens) -> Tokens:
        """The MLP half of the block."""
        block = self.block
        out = block.mlp(t.x if self.post_norm else block.norm2(t.x))
        return t.with_x(t.x + block.drop_path2(self._scaled(out, 2)))

    def _scaled(self, out: Tensor, half: int) -> Tensor:
        block = self.block
        if self.post_norm:
            normed: Tensor = (block.norm1 if half == 1 else block.norm2)(out)
            return normed
        scale = getattr(block, f"ls{half}", None)
        if scale is not None:
            scaled: Tensor = scale(out)
            return scaled
        gamma: Tensor | None = getattr(block, f"gamma_{half}", None)
        return out if gamma is None else gamma * out


def rotate(u: Tensor, rope: Tensor, prefix: int, half: bool) -> Tensor:
    """Rotary positions for all tokens after the prefix; u: (B, H, N, d)."""
    return torch.cat([u[:, :, :prefix], apply_rot_embed_cat(u[:, :, prefix:], rope, half=half)], 2)


def _masked_attention(attn: Any, heads: Heads, policy: Tensor) -> Tensor:
    """DynamicViT's softmax: a dropped token j is seen by itself only (spec 4.3).

    A_kj = (e_kj M_kj + eps / N) / (sum_j e_kj M_kj + eps), e_kj = exp(l_kj - max_j l_kj), M_kj = p_j, M_kk = 1.
    """
    logits = (heads.q * heads.scale) @ heads.k_t
    n = policy.shape[1]
    eye = torch.eye(n, dtype=policy.dtype, device=policy.device)
    mask = policy[:, None, None, :] * (1.0 - eye) + eye
    logits = logits.float()
    e = (logits - logits.amax(-1, keepdim=True)).exp() * mask
    a = (e + EPSILON / n) / (e.sum(-1, keepdim=True) + EPSILON)
    mixed: Tensor = attn.attn_drop(a.to(heads.v.dtype)) @ heads.v
    return mixed
