"""What a token-reduced network costs: multiply-accumulates by formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from calibrant.train.vit.hook import ReducedViT
from calibrant.train.vit.reductions.stage import Reduction
from calibrant.train.vit.reductions.table import REDUCTIONS, Method


@dataclass(frozen=True)
class Macs:
    """Multiply-accumulates of one image. tokens: those leaving each block, class token included, cache not appended."""

    total: int
    embedding: int
    blocks: tuple[int, ...]
    head: int
    tokens: tuple[int, ...]

    @property
    def giga(self) -> float:
        """Total in 1e9."""
        return self.total / 1e9


def count_macs(model: nn.Module) -> Macs:
    """Cost in evaluation mode by the formula of the paper (which calls it FLOPs).

    Block: N_a w_attention + 2 N_a^2 D + N_m w_mlp, where w is the number of weights a token passes (4 D^2 and 8 D^2 in
    a plain block), N_a the tokens in attention, N_m those in the MLP; ATS 3 N D^2 + N^2 D + N' N D + N' D^2; plus what
    the reduction itself computes. ATS counts with all its slots. Norms, softmax and activations count nothing.
    Source: spec/clca.md 6.
    """
    vit: Any = model._vit if isinstance(model, ReducedViT) else model
    patches, dim = int(vit.patch_embed.num_patches), int(vit.embed_dim)
    embedding = patches * _weights(vit.patch_embed)
    prefix, suffix, held = int(vit.num_prefix_tokens), 0, 0
    clc = getattr(model, "clc", None)
    n = prefix + patches
    if clc is not None:
        n, suffix = n + clc.tokens, clc.tokens
    method = REDUCTIONS.get(model.settings.method) if isinstance(model, ReducedViT) else None
    blocks, tokens = [], []
    for i, block in enumerate(vit.blocks):
        reduction = _reduction(model, i)
        after = n
        extra = 0
        if reduction is not None:
            after = prefix + reduction.leaves(n - prefix, patches, suffix)
            extra = reduction.extra_macs(n - prefix, patches, suffix, dim)
        blocks.append(_block(block, None if reduction is None else method, n, after, dim) + extra)
        tokens.append(after)
        n = after
        if clc is not None:
            if i in clc.recovery:
                n, suffix, held = n + held, suffix + held, 0
            if i < clc.recovery[-1]:
                held += clc.tokens + int(clc.pool)
    head = _head(model, vit, n)
    return Macs(embedding + sum(blocks) + head, embedding, tuple(blocks), head, tuple(tokens))


def _reduction(model: nn.Module, i: int) -> Reduction | None:
    stage = model._stage_of.get(i) if isinstance(model, ReducedViT) else None
    if stage is None or not isinstance(model, ReducedViT):
        return None
    reduction: Reduction = getattr(model, model.settings.method)[stage]
    return reduction


def _block(block: Any, method: Method | None, n: int, after: int, dim: int) -> int:
    attention, mlp = _weights(block.attn), _weights(block.mlp)
    if method is not None and method.shrinks == "attention":
        projection = _weights(block.attn.proj)
        return n * (attention - projection) + n * n * dim + after * n * dim + after * projection + after * mlp
    inside = after if method is not None and method.shrinks == "input" else n
    return inside * attention + 2 * inside * inside * dim + after * mlp


def _head(model: nn.Module, vit: Any, n: int) -> int:
    name = model.settings.head if isinstance(model, ReducedViT) else "none"
    if name != "none":
        return _weights(getattr(model, name))
    return _weights(vit.head) + (n * _weights(vit.attn_pool) if vit.attn_pool is not None else 0)


def _weights(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters() if p.dim() > 1)
