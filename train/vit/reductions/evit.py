"""EViT: Top-K, and one more token that carries what was dropped."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calibrant.train.vit.reductions.topk import TopK
from calibrant.train.vit.tokens import Tokens, follow


class EViT(TopK):
    """As Top-K, then x_f = sum over dropped j of a_j x_j at the end (a plain weighted sum).

    Source: Liang et al. 2022 (arXiv 2202.07800), spec/clca.md 4.2. The weights of the kept tokens are set to zero and
    all tokens summed: one small matrix product, no list of the dropped ones, exact, and of static shape in ONNX.
    """

    def drop(self, t: Tokens, a: Tensor, keep: int) -> Tokens:
        """The K tokens of largest a and the fused rest."""
        index = torch.topk(a, keep, 1).indices
        weight = a.scatter(1, index, torch.zeros_like(index, dtype=a.dtype))
        fused = weight[:, None].to(t.x.dtype) @ t.x[:, t.prefix :]
        kept = t.take(index + t.prefix)
        if t.where is not None:
            place = torch.arange(t.prefix, t.prefix + keep, device=index.device).expand_as(index)
            moved = index.new_full(t.x.shape[:2], t.prefix + keep).scatter(1, index + t.prefix, place)
            kept = replace(kept, where=follow(t.where, moved))
        return kept.append(fused)

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """K and the fused token."""
        keep = self.kept(count)
        return keep if keep == count else keep + 1

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """The weighted sum."""
        return count * dim
