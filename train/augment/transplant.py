"""Patches of rare classes put into images of frequent ones."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.train.augment.saliency import Saliency, unit_maps

GRID = 32  # windows are compared on maps of this size


@torch.no_grad()
def transplant(
    x: Tensor,
    donors: Tensor,
    saliency: Saliency,
    labels: Tensor,
    donor_labels: Tensor,
    area: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor]:
    """Image i with the most salient window of donor i in the place of its own least salient one, and what is left.

    x, donors: (N, 3, H, W). Gives the images and the share (N,) of pixels that are still their own. The window is a
    square share of the image, drawn from `area` for each pair; it is copied as it is, not resized or blended.
    Source: the idea of PANDA (Raghavan et al. 2025), which finds regions with CLIP for continual learning. Differs:
    the network's own class map, and labels shared by area.
    """
    n, _, height, width = x.shape
    own = unit_maps(saliency(x, labels), (GRID, GRID))
    theirs = unit_maps(saliency(donors, donor_labels), (GRID, GRID))
    mixed, left = x.clone(), torch.ones(n, dtype=share_dtype(x.device), device=x.device)
    for i, share in enumerate(rng.uniform(*area, size=n)):
        side = min(GRID, max(1, round(math.sqrt(share) * GRID)))
        h, w = max(1, round(side * height / GRID)), max(1, round(side * width / GRID))
        top, column = _corner(theirs[i], side, best=True)
        row, across = _corner(own[i], side, best=False)
        t, c = _pixel(top, height, h), _pixel(column, width, w)
        r, a = _pixel(row, height, h), _pixel(across, width, w)
        mixed[i, :, r : r + h, a : a + w] = donors[i, :, t : t + h, c : c + w]
        left[i] = 1 - h * w / (height * width)
    return mixed, left


def share_dtype(device: torch.device) -> torch.dtype:
    """For shares of labels; Apple's MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def _corner(unit: Tensor, side: int, *, best: bool) -> tuple[int, int]:
    """Top left corner of the window with the largest (or smallest) mean, the first one of equals."""
    mean = F.avg_pool2d(unit[None, None], side, stride=1)[0, 0]
    at = int(mean.argmax() if best else mean.argmin())
    return at // mean.shape[1], at % mean.shape[1]


def _pixel(cell: int, size: int, extent: int) -> int:
    return min(round(cell * size / GRID), size - extent)
