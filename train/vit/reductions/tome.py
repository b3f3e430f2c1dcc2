"""ToMe: merge the most similar tokens in pairs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.reductions.stage import Reduction, Stage
from calibrant.train.vit.tokens import Tokens, follow, rows


class ToMe(Reduction):
    """Bipartite soft matching on the keys of the block, between attention and MLP.

    Metric: mean over heads of the keys, L2-normalised. A = even positions, B = odd ones. Each token of A finds its most
    similar one of B; the r of A with the highest similarity are averaged into it, weighted by how many tokens each
    stands for. Order after it: the rest of A, rising, then B. From then on log size is added to the attention logits of
    every key. r = planned count before - K_s, at most half of the tokens, of which one is left.
    Source: Bolya et al. 2023 (arXiv 2210.09461), spec/clca.md 4.5.
    Differs: with `repeat` the matching is run again until r tokens are gone, so keep rates below one half mean what
    they say (the reference stops at half: keep 0.1 then costs more than 0.5); registers are never merged.
    """

    def __init__(self, stage: Stage, *, repeat: bool = False) -> None:
        super().__init__(stage)
        self.repeat = repeat

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Attend, merge, then the MLP."""
        heads = layer.project(t)
        t = t.with_x(layer.add_attention(t.x, layer.attend(heads, t.key_bias()), heads.y))
        metric = heads.k_t.mean(1).transpose(1, 2)
        for merge in self.steps(t.count, patches, t.prefix):
            t, metric = merge_pairs(t, metric, merge)
        return layer.feed_forward(t)

    def steps(self, count: int, patches: int, prefix: int = 1) -> list[int]:
        """How many tokens each matching of this stage removes."""
        wanted = self.stage.planned_away(patches)
        steps: list[int] = []
        while wanted > 0:
            n = count + prefix
            most = (n + 1) // 2 - (prefix + 1) // 2  # tokens of A that are not prefix
            step = min(wanted, most if (n // 2) > prefix // 2 else 0)
            if step == 0:
                break
            steps.append(step)
            wanted, count = wanted - step, count - step
            if not self.repeat:
                break
        return steps

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """What is there less what was merged away."""
        return count - sum(self.steps(count, patches))

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """Similarities of half against half over one head's width are left out, as in the paper's count."""
        return 0


def merge_pairs(t: Tokens, metric: Tensor, merge: int) -> tuple[Tokens, Tensor]:
    """One matching that removes `merge` tokens; the metric of merged tokens is averaged with the same weights."""
    a, b, best = match(metric, t.prefix)
    order = torch.topk(best, best.shape[1], 1).indices
    gone, stay = order[:, :merge], order[:, merge:].sort(1).values
    onto = F.one_hot(b.gather(1, gone), metric.shape[1] // 2).to(t.x.dtype)  # (B, merge, |B|)
    size = t.size if t.size is not None else t.x.new_ones(t.x.shape[:2])
    weighted, size_a, size_b = t.x * size[..., None], size[:, ::2], size[:, 1::2]
    total = size_b + (size_a.gather(1, gone)[:, None] @ onto)[:, 0]

    def merged(values: Tensor) -> Tensor:
        even, odd = values[:, ::2], values[:, 1::2]
        return torch.cat([rows(even, stay), odd + onto.transpose(1, 2) @ rows(even, gone)], 1)

    new_size = torch.cat([size_a.gather(1, stay), total], 1)
    where = None
    if t.where is not None:
        where = follow(t.where, _moved(t.x.shape[1], a, b, gone, stay))
    x = merged(weighted) / new_size[..., None]
    key = merged(metric.to(size.dtype) * size[..., None]) / new_size[..., None]
    prefix_first = _prefix_first(x.shape[1], stay.shape[1], t.prefix)
    t = replace(t, x=x, size=new_size, where=where)
    if prefix_first is None:
        return t, key
    return _permute(t, new_size, prefix_first), key[:, prefix_first]


def match(metric: Tensor, prefix: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each even token: its place, its most similar odd token, and that similarity (-inf where it may not go)."""
    unit = metric.float() / metric.float().norm(dim=-1, keepdim=True)
    even, odd = unit[:, ::2], unit[:, 1::2]
    similarity = even @ odd.transpose(1, 2)
    n_even, n_odd = even.shape[1], odd.shape[1]
    row = torch.arange(n_even, device=metric.device) * 2 < prefix
    column = torch.arange(n_odd, device=metric.device) * 2 + 1 < prefix
    similarity = similarity.masked_fill(row[:, None] | column[None, :], float("-inf"))
    best, partner = similarity.max(-1)
    return torch.arange(n_even, device=metric.device), partner, best


def _prefix_first(count: int, evens: int, prefix: int) -> Tensor | None:
    """Order that brings odd registers back to the front; None where the class token is the only prefix."""
    if prefix == 1:
        return None
    front = [evens + (p - 1) // 2 if p % 2 else p // 2 for p in range(prefix)]
    return torch.tensor(front + [j for j in range(count) if j not in set(front)])


def _permute(t: Tokens, size: Tensor, order: Tensor) -> Tokens:
    order = order.to(t.x.device)
    where = t.where
    if where is not None:
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        where = follow(where, back.expand(where.shape[0], -1))
    return replace(t, x=t.x[:, order], size=size[:, order], where=where)


def _moved(n: int, a: Tensor, partner: Tensor, gone: Tensor, stay: Tensor) -> Tensor:
    b, left = stay.shape
    moved = stay.new_zeros(b, n)
    place = torch.arange(left, device=stay.device).expand_as(stay)
    moved = moved.scatter(1, stay * 2, place)
    moved = moved.scatter(1, gone * 2, left + partner.gather(1, gone))
    odd = torch.arange(n // 2, device=stay.device).expand(b, -1)
    return moved.scatter(1, odd * 2 + 1, left + odd)
