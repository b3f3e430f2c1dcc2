"""DynamicViT: a small network at each stage decides which tokens stay; trained through masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.train.vit.attention import EPSILON, Layer
from calibrant.train.vit.reductions.stage import Reduction, Stage
from calibrant.train.vit.tokens import Tokens, total


def standard_gumbel(like: Tensor) -> Tensor:
    """Gumbel(0, 1) noise of the shape of `like`."""
    return -torch.empty_like(like).exponential_().log()


class DynamicViT(Reduction):
    """log pi = log-softmax(fc3 gelu fc2 gelu fc1 [local half, global half]) of gelu fc_in LN(z); column 0 = keep.

    global half = sum_j p_j z_j / sum_j p_j + 1e-6 with p the decision so far. Evaluation keeps the K largest
    log pi_0, descending: K = floor(P r^(s+1)), with a cache floor((n - 1) r) of the n tokens there now. Training
    removes nothing: a hard Gumbel-softmax sample (temperature 1, straight-through) times the earlier decision masks the
    attention of this block and of all that follow, and (mean_j decision - r^(s+1))^2 is what `auxiliary_loss` adds up.
    Source: Rao et al. 2021 (arXiv 2106.02034), spec/clca.md 4.3.
    Differs: at least one token is kept, and tokens that came from the cache count for the global half only if the
    reference counts them (p = 0 in evaluation, 1 in training); where that leaves none, the mean is over nothing and 0.
    """

    def __init__(self, stage: Stage, *, dim: int) -> None:
        super().__init__(stage)
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.fc_in = nn.Linear(dim, dim)
        self.fc1 = nn.Linear(dim, dim // 2)
        self.fc2 = nn.Linear(dim // 2, dim // 4)
        self.fc3 = nn.Linear(dim // 4, 2)
        self.noise: Callable[[Tensor], Tensor] = standard_gumbel

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Decide on the block's input, then run the block."""
        policy = t.policy if t.policy is not None else t.x.new_ones(t.x.shape[:2])
        if self.training:
            return layer.whole(self.mask(t, policy))
        keep = self.leaves(t.count, patches, t.suffix)
        score = self.log_keep(t.x[:, t.prefix :], policy[:, t.prefix :])[..., 0]
        index = torch.topk(score, keep, 1).indices
        return layer.whole(replace(t, policy=policy).take(index + t.prefix))

    def log_keep(self, z: Tensor, p: Tensor) -> Tensor:
        """log pi, (B, n, 2)."""
        z = F.gelu(self.fc_in(self.ln(z)))
        local, wide = z.chunk(2, -1)
        p = p.to(wide.dtype)
        whole = total(wide, p) / p.sum(1).clamp_min(EPSILON)[:, None, None] + 1e-6
        z = torch.cat([local, whole.expand_as(local)], -1)
        z = self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(z)))))
        return F.log_softmax(z, -1)

    def mask(self, t: Tokens, policy: Tensor) -> Tokens:
        """The tokens with the sampled decision as their policy and the stage's squared ratio error added."""
        before = policy[:, t.prefix :]
        logits = self.log_keep(t.x[:, t.prefix :], before)
        soft = (logits + self.noise(logits)).softmax(-1)
        hard = F.one_hot(soft.argmax(-1), 2).to(soft.dtype)
        sample = (hard - soft.detach() + soft)[..., 0]  # value of the hard draw, gradient of the soft one
        decision = sample * before
        error = (decision.mean(1) - self.stage.share()).square().mean()
        policy = torch.cat([policy[:, : t.prefix], decision], 1)
        return replace(t, policy=policy, ratio=error if t.ratio is None else t.ratio + error)

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """K."""
        if self.stage.cached:
            return max(1, int((count - 1) * self.stage.rate))
        return min(count, self.stage.planned(patches))

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """The predictor, n (D^2 + D^2/2 + D^2/8 + D/2)."""
        return count * (dim * dim + dim * dim // 2 + dim * dim // 8 + dim // 2)
