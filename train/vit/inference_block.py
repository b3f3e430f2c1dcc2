"""A transformer block in the form that runs fastest once exported."""

from __future__ import annotations

from typing import Any

import torch
from timm.models.eva import EvaBlockPostNorm
from timm.models.vision_transformer import ResPostBlock
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.train.vit.attention import Heads, rotate
from calibrant.train.vit.tokens import Tokens

SQRT2 = 1.4142135623730951


class FusableGELU(nn.Module):
    """gelu(x) = (x / 2) (1 + erf(x / sqrt 2)), in the order of operations that onnxruntime recognises at any opset."""

    def forward(self, x: Tensor) -> Tensor:
        """Element-wise."""
        return (0.5 * x) * (1.0 + torch.erf(x / SQRT2))


class InferenceBlock(nn.Module):
    """The same numbers as the timm block it is made from, for evaluation only.

    Linear layers see (B N, D), so that each is one Gemm with its bias inside; q, k and v come from one product, split
    afterwards, keys already transposed; 1/sqrt(d) is in the weights of q, LayerScale in those of the projections.
    fused: the whole attention becomes one com.microsoft Attention node in ONNX; where the block needs what that node
    cannot do (rotary positions, norms or gates inside attention, an additive bias per key), MatMul, Softmax, MatMul.
    The block that is given is taken apart and must not be used again.
    """

    def __init__(self, block: Any, i: int, *, fused: bool) -> None:
        super().__init__()
        attn = block.attn
        self.i, self.h = i, int(attn.num_heads)
        self.post_norm = isinstance(block, (ResPostBlock, EvaBlockPostNorm))
        self.norm1, self.norm2, self.mlp = block.norm1, block.norm2, block.mlp
        self.q_norm, self.k_norm, self.inner_norm = attn.q_norm, attn.k_norm, attn.norm
        self.gate, self.proj = getattr(attn, "gate", None), attn.proj
        self.rotate_half = bool(getattr(attn, "rotate_half", False))
        plain = isinstance(attn.q_norm, nn.Identity)
        self.scale = 1.0 if plain else float(attn.scale)
        weight, bias = _joint(attn)
        self.width = weight.shape[0] // 3
        self.d = self.width // self.h
        if plain:
            weight[: self.width] *= attn.scale
            if bias is not None:
                bias[: self.width] *= attn.scale
        # One product of (B N, D) with (D, 3 H d): stored as the ONNX node wants it.
        self.register_buffer("weight", weight.t().contiguous())
        self.register_buffer("bias", torch.zeros(len(weight)) if bias is None else bias)
        self.fused = fused and plain and isinstance(attn.k_norm, nn.Identity)
        with torch.no_grad():
            _fold_scale(block, 1, self.proj)
            _fold_scale(block, 2, self.mlp.fc2)
        if isinstance(getattr(self.mlp, "act", None), nn.GELU) and self.mlp.act.approximate == "none":
            self.mlp.act = FusableGELU()

    weight: Tensor
    bias: Tensor

    def whole(self, t: Tokens) -> Tokens:
        """The block without a reduction."""
        if self.fused and t.rope is None and t.size is None:
            y = t.x if self.post_norm else self.norm1(t.x)
            return self.feed_forward(t.with_x(self._add(t.x, self._one_node(y, t.valid), y)))
        heads = self.project(t)
        mixed = self.attend(heads, t.key_bias())
        return self.feed_forward(t.with_x(self.add_attention(t.x, mixed, heads.y)))

    def class_only(self, t: Tokens) -> Tensor:
        """The class token that leaves the block, (B, D): its query only, its MLP only."""
        x = t.x[:, 0]
        y = t.x if self.post_norm else self.norm1(t.x)
        flat, w = y.reshape(-1, y.shape[2]), self.width
        q = y[:, 0] @ self.weight[:, :w] + self.bias[:w]
        k, v = torch.split(flat @ self.weight[:, w:] + self.bias[w:], w, 1)
        heads = self._heads(q, 1, k, v, t, y, rotate_q=False)
        mixed = self.attend(heads, t.key_bias())
        one = t.with_x(self.add_attention(x[:, None], mixed, y[:, :1]))
        return self.feed_forward(one).x[:, 0]

    def project(self, t: Tokens) -> Heads:
        """Queries, keys and values."""
        y = t.x if self.post_norm else self.norm1(t.x)
        q, k, v = torch.split(F.linear(y.reshape(-1, y.shape[2]), self.weight.t(), self.bias), self.width, 1)
        return self._heads(q, t.x.shape[1], k, v, t, y, rotate_q=True)

    def _heads(self, q: Tensor, rows: int, k: Tensor, v: Tensor, t: Tokens, y: Tensor, *, rotate_q: bool) -> Heads:
        n, rope = t.x.shape[1], t.rotary(self.i)
        q = self.q_norm(q.reshape(-1, rows, self.h, self.d)).transpose(1, 2)
        k = self.k_norm(k.reshape(-1, n, self.h, self.d))
        v = v.reshape(-1, n, self.h, self.d).transpose(1, 2)
        if rope is None:
            return Heads(q, k.permute(0, 2, 3, 1), v, self.scale, y)
        if rotate_q:
            q = rotate(q, rope, t.prefix, self.rotate_half)
        return Heads(q, rotate(k.transpose(1, 2), rope, t.prefix, self.rotate_half).transpose(2, 3), v, self.scale, y)

    def attend(self, heads: Heads, bias: Tensor | None, query: Tensor | None = None) -> Tensor:
        """softmax(scale q k_t + bias) v as plain products."""
        q = heads.q if query is None else query
        logits = (q if heads.scale == 1.0 else q * heads.scale) @ heads.k_t
        mixed: Tensor = (logits if bias is None else logits + bias).softmax(-1) @ heads.v
        return mixed

    def add_attention(self, x: Tensor, mixed: Tensor, y: Tensor) -> Tensor:
        """x + projection(mixed) for the rows that x has."""
        return self._add(x, mixed.transpose(1, 2).reshape(-1, x.shape[1], self.width), y)

    def _add(self, x: Tensor, mixed: Tensor, y: Tensor) -> Tensor:
        out: Tensor = self.inner_norm(mixed.reshape(-1, self.width))
        if self.gate is not None:
            out = out * self.gate(y.reshape(-1, y.shape[2])).sigmoid()
        out = self.proj(out)
        if self.post_norm:
            out = self.norm1(out)
        return (x.reshape(-1, x.shape[2]) + out).reshape(-1, *x.shape[1:])

    def feed_forward(self, t: Tokens) -> Tokens:
        """The MLP half."""
        x = t.x.reshape(-1, t.x.shape[2])
        out = self.norm2(self.mlp(x)) if self.post_norm else self.mlp(self.norm2(x))
        return t.with_x((x + out).reshape(-1, *t.x.shape[1:]))

    def _one_node(self, y: Tensor, valid: Tensor | None) -> Tensor:
        """Attention with its projections, (B, N, H d)."""
        if torch.onnx.is_in_onnx_export():
            shape = (*y.shape[:2], self.width)
            inputs: list[Tensor | None] = [y, self.weight, self.bias]
            if valid is not None:
                inputs.append(valid.to(torch.int32))
            attributes: dict[str, Any] = {"num_heads": self.h, "scale": 1.0}
            if self.width != y.shape[2]:
                attributes["qkv_hidden_sizes"] = [self.width] * 3
            return torch.onnx.ops.symbolic(
                "com.microsoft::Attention", inputs, attributes, dtype=y.dtype, shape=shape, version=1
            )
        joint = (y @ self.weight + self.bias).reshape(*y.shape[:2], 3, self.h, self.d)
        q, k, v = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mask = None if valid is None else valid[:, None, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0).transpose(1, 2).flatten(2)


def _joint(attn: Any) -> tuple[Tensor, Tensor | None]:
    """Weight (3 H d, D) and bias of one product for q, k and v; keys and values shared by heads are written out."""
    if attn.qkv is not None:
        weight, bias = attn.qkv.weight.detach().clone(), attn.qkv.bias
        if getattr(attn, "q_bias", None) is not None:
            bias = torch.cat((attn.q_bias, attn.k_bias, attn.v_bias))
        return weight, None if bias is None else bias.detach().clone()
    parts = [(p.weight.detach(), p.bias) for p in (attn.q_proj, attn.k_proj, attn.v_proj)]
    groups, d = getattr(attn, "num_kv_groups", 1), attn.q_proj.out_features // attn.num_heads
    rows = [w if i == 0 else _repeat(w, groups, d) for i, (w, _) in enumerate(parts)]
    if all(b is None for _, b in parts):
        return torch.cat(rows), None
    biases = [torch.zeros(len(w)) if b is None else b.detach() for w, b in parts]
    return torch.cat(rows), torch.cat([b if i == 0 else _repeat(b, groups, d) for i, b in enumerate(biases)])


def _repeat(w: Tensor, groups: int, d: int) -> Tensor:
    return w.reshape(-1, d, *w.shape[1:]).repeat_interleave(groups, 0).reshape(-1, *w.shape[1:])


def _fold_scale(block: Any, half: int, linear: nn.Linear) -> None:
    """LayerScale of one half of the block into the linear layer before it."""
    scale = getattr(block, f"ls{half}", None)
    gamma = getattr(scale, "gamma", None) if scale is not None else getattr(block, f"gamma_{half}", None)
    if gamma is None:
        return
    linear.weight.mul_(gamma[:, None])
    if linear.bias is not None:
        linear.bias.mul_(gamma)
