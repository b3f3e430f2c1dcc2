"""Changes to training features: noise, channel scaling, mixup, SMOTE and head-to-tail mixing.

All of them work on transformed features (N, D) or (N, T, D) and take their own generator, so that switching one on
moves no other random stream.
"""

from __future__ import annotations

import torch
from torch import Tensor


def add_noise(x: Tensor, deviation: Tensor, share: float, rng: torch.Generator) -> Tensor:
    """x + share * deviation_j * e, e ~ N(0, 1). deviation: (D,) standard deviation of each feature in training."""
    return x + share * deviation * torch.randn(x.shape, generator=rng).to(x)


def scale_channels(x: Tensor, width: float, rng: torch.Generator) -> Tensor:
    """x_ij u_ij, u uniform on [1 - width, 1 + width]; for tokens one u per image and channel.

    After FroFA's channel-wise augmentations (Bar et al. 2024). Differs: FroFA moves features scaled to [0, 1]; here the
    features are as the head sees them, so a standardised channel is scaled about its mean.
    """
    shape = (x.shape[0], *(1,) * (x.ndim - 2), x.shape[-1])
    return x * (1 + width * (2 * torch.rand(shape, generator=rng).to(x) - 1))


def mixup_share(alpha: float, rng: torch.Generator) -> float:
    """lam ~ Beta(alpha, alpha), one for a batch: a ratio of two Gamma draws."""
    a = torch.full((2,), alpha, dtype=torch.float64)
    first, second = torch._standard_gamma(a, generator=rng).tolist()
    return 0.5 if first + second == 0 else first / (first + second)


def mix(x: Tensor, order: Tensor, lam: float) -> Tensor:
    """lam x + (1 - lam) x[order]."""
    return lam * x + (1 - lam) * x.index_select(0, order)


def smote(
    x: Tensor, y: Tensor, classes: int, *, fill: float, neighbours: int, rng: torch.Generator
) -> tuple[Tensor, Tensor]:
    """New rows that bring every class up to round(fill * n_max): x_i + u (x_j - x_i), j a near neighbour in the class.

    u uniform on [0, 1), one per row (Chawla et al. 2002). A class of one row has no neighbour; its row is repeated.
    """
    counts = torch.bincount(y, minlength=classes)
    wanted = int(round(fill * int(counts.max())))
    new_x, new_y = [], []
    for k in range(classes):
        lacking = wanted - int(counts[k])
        if lacking <= 0 or not int(counts[k]):
            continue
        own = x[y == k]
        flat = own.reshape(len(own), -1)
        base = torch.randint(len(own), (lacking,), generator=rng)
        if len(own) > 1:
            near = min(neighbours, len(own) - 1)
            distance = torch.cdist(flat, flat).fill_diagonal_(torch.inf)
            nearest = distance.topk(near, largest=False).indices.cpu()
            other = nearest[base, torch.randint(near, (lacking,), generator=rng)]
        else:
            other = base
        u = torch.rand((lacking, *(1,) * (x.ndim - 1)), generator=rng).to(x)
        new_x.append(own[base] + u * (own[other] - own[base]))
        new_y.append(torch.full((lacking,), k, dtype=y.dtype, device=y.device))
    if not new_x:
        return x[:0], y[:0]
    return torch.cat(new_x), torch.cat(new_y)


def head_to_tail(
    x: Tensor, y: Tensor, *, pool: Tensor, is_tail: Tensor, share: float, largest: float, rng: torch.Generator
) -> Tensor:
    """A share of the tail rows moves towards a row of a head class and keeps its own label.

    f <- (1 - lam) f + lam f_head, lam uniform on [0, largest]. pool: rows of head classes; is_tail: (C,) bool.
    The head lends its spread to the tail, as in Chu et al. 2020. Differs: a straight mixture of whole features.
    """
    chosen = is_tail[y] & (torch.rand(len(y), generator=rng).to(x.device) < share)
    lam = largest * torch.rand(len(y), generator=rng).to(x) * chosen
    partner = pool[torch.randint(len(pool), (len(y),), generator=rng).to(x.device)]
    lam = lam.reshape(-1, *(1,) * (x.ndim - 1))
    return (1 - lam) * x + lam * partner
