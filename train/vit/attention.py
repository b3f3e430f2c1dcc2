"""The parts of a timm block, so that a reduction can step in between them.

A block that does not reduce is called whole. Only a block that has to show its attention, its keys or its values, or
that attends under a training mask, is taken apart here; every weight, norm, dropout and scale stays timm's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """q, k, v: (B, H, N, d), already normalised and rotated; `scale` multiplies q k^T; y: what they were made from."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    y: Tensor

    def class_row(self, bias: Tensor | None = None) -> Tensor:
        """Attention of the class token per head after softmax, (B, H, N)."""
        logits = (self.q[:, :, :1] * self.scale) @ self.k.transpose(-2, -1)
        if bias is not None:
            logits = logits + bias
        return logits.softmax(-1)[:, :, 0]


def _is_post_norm(block: Any) -> bool:
    return isinstance(block, (ResPostBlock, EvaBlockPostNorm))


def _has_rope(block: Any) -> bool:
    return isinstance(block, (EvaBlock, EvaBlockPostNorm))


def whole_block(block: Any, t: Tokens, i: int) -> Tokens:
    """Block i as timm runs it; under a DynamicViT training mask, with the masked softmax."""
    if t.ratio is not None and t.policy is not None:
        heads = project(block, t, i)
        mixed = _masked_attention(block.attn, heads, t.policy)
        return feed_forward(block, t.with_x(add_attention(block, t.x, mixed, heads.y)))
    bias = t.key_bias()
    if _has_rope(block):
        return t.with_x(block(t.x, rope=t.rotary(i), attn_mask=bias))
    return t.with_x(block(t.x, attn_mask=bias))


def project(block: Any, t: Tokens, i: int) -> Heads:
    """Queries, keys and values of block i."""
    attn = block.attn
    y = t.x if _is_post_norm(block) else block.norm1(t.x)
    if hasattr(attn, "project"):  # deploy.py's form
        q, k, v = attn.project(y)
        return Heads(q, k, v, attn.scale, y)
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
    rope = t.rotary(i)
    if rope is not None:
        half = getattr(attn, "rotate_half", False)
        q, k = (_rotate(u, rope, t.prefix, half).type_as(v) for u in (q, k))
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    return Heads(q, k, v, attn.scale, y)


def _rotate(u: Tensor, rope: Tensor, prefix: int, half: bool) -> Tensor:
    return torch.cat([u[:, :, :prefix], apply_rot_embed_cat(u[:, :, prefix:], rope, half=half)], 2)


def attention(block: Any, heads: Heads, bias: Tensor | None, *, query: Tensor | None = None) -> Tensor:
    """softmax(q k^T scale + bias) v, (B, H, N, d); `query` replaces q where only some rows are wanted."""
    attn = block.attn
    q = heads.q if query is None else query
    if hasattr(attn, "attend"):
        mixed: Tensor = attn.attend(q, heads.k, heads.v, bias)
        return mixed
    dropout = attn.attn_drop.p if attn.training else 0.0
    return F.scaled_dot_product_attention(q, heads.k, heads.v, attn_mask=bias, dropout_p=dropout, scale=heads.scale)


def _masked_attention(attn: Any, heads: Heads, policy: Tensor) -> Tensor:
    """DynamicViT's softmax: a dropped token j is seen by itself only (spec 4.3).

    A_kj = (e_kj M_kj + eps / N) / (sum_j e_kj M_kj + eps), e_kj = exp(l_kj - max_j l_kj), M_kj = p_j, M_kk = 1.
    """
    logits = (heads.q * heads.scale) @ heads.k.transpose(-2, -1)
    n = policy.shape[1]
    eye = torch.eye(n, dtype=policy.dtype, device=policy.device)
    mask = policy[:, None, None, :] * (1.0 - eye) + eye
    logits = logits.float()
    e = (logits - logits.amax(-1, keepdim=True)).exp() * mask
    a = (e + EPSILON / n) / (e.sum(-1, keepdim=True) + EPSILON)
    return attn.attn_drop(a.to(heads.v.dtype)) @ heads.v  # type: ignore[no-any-return]


def add_attention(block: Any, x: Tensor, mixed: Tensor, y: Tensor) -> Tensor:
    """x + drop-path(scale(projection(mixed))): the attention half of the block, for the rows that x has.

    y: the normalised input of those same rows, read by gated attention only.
    """
    attn = block.attn
    if hasattr(attn, "project"):
        out = attn.finish(mixed)
    else:
        b, h, n, d = mixed.shape
        out = attn.norm(mixed.transpose(1, 2).reshape(b, n, h * d))
        if getattr(attn, "gate", None) is not None:
            out = out * attn.gate(y).sigmoid()
        out = attn.proj_drop(attn.proj(out))
    return x + block.drop_path1(_scaled(block, out, 1))  # type: ignore[no-any-return]


def feed_forward(block: Any, t: Tokens) -> Tokens:
    """The MLP half of the block."""
    if _is_post_norm(block):
        return t.with_x(t.x + block.drop_path2(block.norm2(block.mlp(t.x))))
    return t.with_x(t.x + block.drop_path2(_scaled(block, block.mlp(block.norm2(t.x)), 2)))


def _scaled(block: Any, out: Tensor, half: int) -> Tensor:
    if _is_post_norm(block):
        normed: Tensor = (block.norm1 if half == 1 else block.norm2)(out)
        return normed
    scale = getattr(block, f"ls{half}", None)
    if scale is not None:
        scaled: Tensor = scale(out)
        return scaled
    gamma: Tensor | None = getattr(block, f"gamma_{half}", None)
    return out if gamma is None else gamma * out
