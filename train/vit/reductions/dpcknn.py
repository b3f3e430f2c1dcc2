"""DPC-KNN: clusters of tokens around density peaks."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.train.vit.attention import Layer
from calibrant.train.vit.reductions.stage import Reduction, Stage
from calibrant.train.vit.tokens import Tokens, follow, total

NEIGHBOURS = 5


class DPCKNN(Reduction):
    """Patches (neither prefix nor appended tokens) become K cluster means.

    dist_ij = |z_i - z_j| / sqrt(D); density_i = exp(-mean of the 5 smallest dist_ij^2, itself included);
    delta_i = smallest dist_ij to a j of higher density, else the largest distance of the image; the K largest
    delta density are centres (descending), every token joins its nearest centre (lowest number on ties), a centre
    itself. Mean with weights w = exp(Linear(z)) over sum w + 1e-6. Gradients flow through w and z only.
    K = floor(P r^(s+1)), at least 5 before the last stage. Source: Zeng et al. 2022 (TCFormer), spec/clca.md 4.6.
    Differs: no random noise on the densities. Distances come from one matrix product of the centred tokens, which
    shape inference can follow; centring keeps the cancellation small.
    """

    def __init__(self, stage: Stage, *, dim: int) -> None:
        super().__init__(stage)
        self.score = nn.Linear(dim, 1)

    def forward(self, layer: Layer, t: Tokens, patches: int) -> Tokens:
        """Cluster the block's input, then run the block."""
        end = t.x.shape[1] - t.suffix
        z = t.x[:, t.prefix : end]
        keep = self._kept(z.shape[1], patches)
        with torch.no_grad():
            cluster = assign(z.detach(), keep)
        w = self.score(z).exp()
        onto = F.one_hot(cluster, keep).to(z.dtype).transpose(1, 2)  # (B, K, n)
        means = (onto @ (z * w)) / (onto @ w + 1e-6)
        x = torch.cat([t.x[:, : t.prefix], means, t.x[:, end:]], 1)
        where = t.where
        if where is not None:
            moved = torch.cat([cluster.new_zeros(len(x), t.prefix), cluster + t.prefix], 1)
            where = follow(where, moved)
        return layer.whole(replace(t, x=x, where=where))

    def _kept(self, count: int, patches: int) -> int:
        keep = self.stage.planned(patches)
        return min(count, keep if self.stage.last else max(keep, NEIGHBOURS))

    def leaves(self, count: int, patches: int, suffix: int) -> int:
        """K clusters and the appended tokens."""
        return self._kept(count - suffix, patches) + suffix

    def extra_macs(self, count: int, patches: int, suffix: int, dim: int) -> int:
        """The distances; the assignment moves data only."""
        n = count - suffix
        return n * n * dim


def assign(z: Tensor, keep: int) -> Tensor:
    """Cluster number of each token, (B, n)."""
    with torch.autocast(z.device.type, enabled=False):
        z = z.float()
        n = z.shape[1]
        z = z - total(z) / n
        norm = z.square().sum(-1)
        square = (norm[:, :, None] + norm[:, None, :] - 2 * z @ z.transpose(1, 2)).clamp_min(0) / z.shape[2]
        square = square * (1.0 - torch.eye(n, device=z.device))  # itself exactly 0
        dist = square.sqrt()
        near = square.topk(min(NEIGHBOURS, n), -1, largest=False).values
        density = (-near.mean(-1)).exp()
        farthest = dist.amax((1, 2))[:, None, None]
        higher = density[:, None, :] > density[:, :, None]
        delta = torch.where(higher, dist, farthest).amin(-1)
        centre = (delta * density).topk(keep, -1).indices
        to_centre = dist.gather(2, centre[:, None, :].expand(-1, n, -1))
        number = torch.arange(keep, device=z.device)
        mine = torch.arange(n, device=z.device)[None, :, None] == centre[:, None, :]
        nearest = to_centre.argmin(-1)
        return torch.where(mine.any(-1), (mine * number).sum(-1), nearest)
