"""ATS: adaptive token sampling, with static shapes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.reductions.stage import Reduction
from calibrant.train.vit.tokens import Tokens, follow, rows, total

FAR = 4.0  # farther from every query point in (0, 1) than any real token


class ATS(Reduction):
    """Inverse-transform sampling of the query rows by significance.

    S_j = sum_h A_h[0, j] |V_h[j]|, over (sum + 1e-6); c = cumulative sum; u_t = (2t - 1) / (2 (K + 1)), t = 1..K,
    K = floor(P r^(s+1)); id_t = argmin_j |u_t - c_j|, the lowest j on ties. Attention is computed for the class token
    and the sampled rows only, over all keys. Source: Fayyaz et al. 2022 (arXiv 2111.15667), spec/clca.md 4.4 and 8.
    Differs: the reference drops repeated ids, so the shape depends on the image and a batch pads. Here all K slots stay
    and a repeat (c rises, so repeats are neighbours) is marked invalid: no key of it is read by anyone, it is never
    sampled, and it does not count in the pooled token. Same class token, static shape, independent of the batch.
    """

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Sample, attend for the sampled rows, then the MLP."""
        keep = self.leaves(t.count, patches, t.suffix)
        valid = t.valid if t.valid is not None else torch.ones_like(t.x[..., 0], dtype=torch.bool)
        t = replace(t, valid=valid)
        bias = t.key_bias()
        heads = layer.project(t)
        score = total(heads.class_row(bias) * heads.v.norm(dim=-1))[:, 0, t.prefix :]
        index, fresh = self.sample(score, valid[:, t.prefix :], keep)
        taken = t.take(index + t.prefix)
        valid = torch.cat([valid[:, : t.prefix], fresh], 1)
        where = None if t.where is None else follow(t.where, self.moved(t, index, fresh))
        taken = replace(taken, valid=valid, where=where)
        q = torch.cat(
            [heads.q[:, :, : t.prefix], _rows4(heads.q, index + t.prefix)],
            2,
        )
        y = torch.cat([heads.y[:, : t.prefix], rows(heads.y, index + t.prefix)], 1)
        mixed = layer.attend(heads, bias, q)
        return layer.feed_forward(taken.with_x(layer.add_attention(taken.x, mixed, y)))

    @staticmethod
    def sample(score: Tensor, valid: Tensor, keep: int) -> tuple[Tensor, Tensor]:
        """ids (B, K), rising, and which of them are not a repeat of the one before.

        Summed in float64 where the device has it: each of the K decisions turns on a distance of c from u_t, and 200
        float32 additions blur c a hundred times more than the scores themselves are blurred.
        """
        score = score.to(torch.float32 if score.device.type == "mps" else torch.float64)
        c = score.cumsum(1)
        c = (c / (c[:, -1:] + 1e-6)).masked_fill(~valid, FAR)
        u = (2 * torch.arange(1, keep + 1, device=c.device, dtype=c.dtype) - 1) / (2 * (keep + 1))
        index = (u[None, :, None] - c[:, None, :]).abs().argmin(-1)
        first = torch.ones_like(index[:, :1], dtype=torch.bool)
        return index, torch.cat([first, index[:, 1:] != index[:, :-1]], 1)

    @staticmethod
    def moved(t: Tokens, index: Tensor, fresh: Tensor) -> Tensor:
        """Where each token went, for a watcher: the first slot that holds it."""
        slot = torch.arange(t.prefix, t.prefix + index.shape[1], device=index.device).expand_as(index)
        far = t.x.shape[1] + index.shape[1]
        lowest = index.new_full(t.x.shape[:2], far)
        lowest = lowest.scatter_reduce(1, index + t.prefix, torch.where(fresh, slot, far), "amin")
        return lowest.masked_fill(lowest == far, -1)

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """All K slots, the most that can survive."""
        return min(count, self.stage.planned(patches))

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """Nothing: the block gets cheaper, which macs.py counts."""
        return 0


def _rows4(q: Tensor, index: Tensor) -> Tensor:
    b, h, _, d = q.shape
    return q.gather(2, index[:, None, :, None].expand(b, h, -1, d))
