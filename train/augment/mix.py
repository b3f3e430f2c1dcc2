"""Mixing the images of a batch, with both labels kept.

timm's version changes the batch in place, draws from NumPy's global generator and gives soft labels only; losses on the
probability of the true class need the two labels and the share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from calibrant.train.augment.saliency import Saliency, class_map, spectral_residual
from calibrant.train.augment.superpixels import salient_mask, superpixels
from calibrant.train.augment.transplant import share_dtype, transplant
from calibrant.train.config import AugmentConfig
from calibrant.train.losses.shared.target import MixedTarget
from calibrant.train.model.feature_model import FeatureModel


def wanted_saliency(
    config: AugmentConfig, model: FeatureModel, autocast: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Saliency | None:
    """The maps that the settings ask for; None where nothing looks at them."""
    if not (config.superpixel_mix or config.transplant):
        return None
    return class_map(model, autocast) if config.saliency == "class-map" else spectral_residual


def mix(
    x: Tensor,
    labels: Tensor,
    config: AugmentConfig,
    rng: np.random.Generator,
    saliency: Saliency | None = None,
    choice: np.random.Generator | None = None,
) -> tuple[Tensor, Tensor | MixedTarget]:
    """The batch mixed with a permutation of itself, or as it is (with probability 1 - mix_prob). x: (N, 3, H, W).

    Whether and how is drawn from `choice` (else `rng`): processes that share a batch must agree on it.

    mixup: lam x + (1 - lam) x', lam ~ Beta(a, a) (Zhang et al. 2018). cutmix: a box of the share 1 - lam comes from x',
    and lam becomes the share of pixels left (Yun et al. 2019). superpixel_mix: see `mix_superpixels`. With several on,
    each batch is one of them.
    """
    kinds = [kind for kind in ("cutmix", "mixup", "superpixel_mix") if getattr(config, kind)]
    choice = rng if choice is None else choice
    if not kinds or choice.random() >= config.mix_prob:
        return x, labels
    kind = kinds[int(choice.random() * len(kinds))] if len(kinds) > 1 else kinds[0]
    if kind == "superpixel_mix":
        assert saliency is not None  # wanted_saliency() gives one for these settings
        return mix_superpixels(x, labels, config, rng, saliency)
    alpha = config.cutmix if kind == "cutmix" else config.mixup
    lam = float(rng.beta(alpha, alpha))
    order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
    if kind == "mixup":
        return lam * x + (1 - lam) * x[order], MixedTarget(labels, labels[order], lam)
    height, width = x.shape[2:]
    top, bottom, left, right = cut_box(lam, height, width, rng)
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    left_over = 1 - (bottom - top) * (right - left) / (height * width)
    return mixed, MixedTarget(labels, labels[order], left_over)


def cut_box(lam: float, height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of a box of the share 1 - lam, its centre anywhere, cut at the edges."""
    h, w = height * math.sqrt(1 - lam), width * math.sqrt(1 - lam)
    cy, cx = rng.uniform(0, height), rng.uniform(0, width)
    top, bottom = round(max(0.0, cy - h / 2)), round(min(height, cy + h / 2))
    left, right = round(max(0.0, cx - w / 2)), round(min(width, cx + w / 2))
    return top, bottom, left, right


def mix_superpixels(
    x: Tensor, labels: Tensor, config: AugmentConfig, rng: np.random.Generator, saliency: Saliency
) -> tuple[Tensor, MixedTarget]:
    """The most salient superpixels of x' in their places in x; labels by the share of pixels.

    x'_i is another image of the batch, cut into q superpixels, q drawn for each batch from config.superpixels; the
    config.superpixel_mix of them with the largest mean saliency for its label are pasted.
    Source: OcCaMix (Dornaika & Sun 2023). Differs: saliency is that of the image's label, where the authors' code takes
    the maximum over all classes; superpixels are ranked by their mean, where it takes those under the largest cells;
    q is drawn for a batch, not for each image.
    """
    order = torch.from_numpy(rng.permutation(len(x))).to(x.device)
    low, high = config.superpixels
    other, y2 = x[order], labels[order]
    regions = superpixels(other, int(rng.integers(low, high + 1)))
    mask = salient_mask(regions, saliency(other, y2), config.superpixel_mix, (x.shape[2], x.shape[3]))
    lam = 1 - mask.flatten(1).to(share_dtype(x.device)).mean(1)
    return torch.where(mask[:, None], other, x), MixedTarget(labels, y2, lam)


def mix_donors(
    x: Tensor,
    labels: Tensor,
    donors: Tensor,
    donor_labels: Tensor,
    rows: Tensor,
    config: AugmentConfig,
    rng: np.random.Generator,
    saliency: Saliency,
) -> tuple[Tensor, MixedTarget]:
    """The batch with a patch of donor j (M, 3, H, W) in row rows[j]; all other rows keep their image and label."""
    changed, left = transplant(x[rows], donors, saliency, labels[rows], donor_labels, config.transplant_area, rng)
    mixed, y2, lam = x.clone(), labels.clone(), torch.ones(len(x), dtype=share_dtype(x.device), device=x.device)
    mixed[rows], y2[rows], lam[rows] = changed, donor_labels, left
    return mixed, MixedTarget(labels, y2, lam)
