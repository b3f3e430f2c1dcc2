"""Mixup and cutmix of a batch, with both labels kept.

timm's version changes the batch in place, draws from NumPy's global generator and gives soft labels only; losses on the
probability of the true class need the two labels and the share.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from calibrant.train.config import AugmentConfig
from calibrant.train.losses.base import MixedTarget


def mix(
    x: Tensor, labels: Tensor, config: AugmentConfig, rng: np.random.Generator
) -> tuple[Tensor, Tensor | MixedTarget]:
    """The batch mixed with a permutation of itself, or as it is (with probability 1 - mix_prob). x: (N, 3, H, W).

    mixup: lam x + (1 - lam) x', lam ~ Beta(a, a) (Zhang et al. 2018). cutmix: a box of the share 1 - lam comes from x',
    and lam becomes the share of pixels left (Yun et al. 2019). With both on, each batch is one or the other.
    """
    if not (config.mixup or config.cutmix) or rng.random() >= config.mix_prob:
        return x, labels
    cut = rng.random() < 0.5 if config.mixup and config.cutmix else config.cutmix > 0
    alpha = config.cutmix if cut else config.mixup
    lam = float(rng.beta(alpha, alpha))
    order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
    if not cut:
        return lam * x + (1 - lam) * x[order], MixedTarget(labels, labels[order], lam)
    height, width = x.shape[2:]
    h, w = height * math.sqrt(1 - lam), width * math.sqrt(1 - lam)
    cy, cx = rng.uniform(0, height), rng.uniform(0, width)
    top, bottom = round(max(0.0, cy - h / 2)), round(min(height, cy + h / 2))
    left, right = round(max(0.0, cx - w / 2)), round(min(width, cx + w / 2))
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    left_over = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, MixedTarget(labels, labels[order], left_over)
