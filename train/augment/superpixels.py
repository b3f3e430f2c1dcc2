"""Superpixels of a batch of images at once, and those of them that matter."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.train.augment.saliency import shrink, unit_maps

WORKING_SIDE = 64  # px; a superpixel is far larger than the block that a pixel then stands for
COMPACTNESS = 0.5  # of space against colour, whose unit is the deviation of the network's normalisation


@torch.no_grad()
def superpixels(x: Tensor, count: int, *, iterations: int = 5) -> Tensor:
    """About `count` regions of similar colour and near place in each image. (N, 3, H, W) -> (N, h, w) int64 labels.

    k-means of (colour, m / S * place), S^2 the area of a region, m the compactness, from centres on a regular grid:
    SLIC (Achanta et al. 2012). h, w: as `shrink` gives them for WORKING_SIDE.
    Differs: RGB as the network gets it in place of Lab; every centre competes for every pixel (one matrix product a
    batch) in place of a window of 2 S; small pieces are not joined to their neighbours.
    """
    small = shrink(x, WORKING_SIDE).float()
    n, _, h, w = small.shape
    rows = max(1, round(math.sqrt(count * h / w)))
    columns = max(1, round(count / rows))
    scale = COMPACTNESS / math.sqrt(h * w / (rows * columns))
    y, z = torch.meshgrid(torch.arange(h, device=x.device), torch.arange(w, device=x.device), indexing="ij")
    place = scale * torch.stack([y, z]).to(small.dtype)
    points = torch.cat([small, place.expand(n, -1, -1, -1)], 1).flatten(2).transpose(1, 2)  # (N, P, 5)
    at = ((torch.arange(rows, device=x.device) + 0.5) * h / rows).long()[:, None] * w
    at = (at + ((torch.arange(columns, device=x.device) + 0.5) * w / columns).long()).flatten()
    centres = points[:, at]  # (N, K, 5)
    label = _nearest(points, centres)
    for _ in range(iterations):
        member = _members(label, len(at)).to(points.dtype)
        size = member.sum(2, keepdim=True)
        # A product in place of scatter_add: its order of summation is fixed on every device.
        centres = torch.where(size > 0, member @ points / size.clamp(min=1), centres)
        label = _nearest(points, centres)
    return label.reshape(n, h, w)


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    """argmin_k |p - c_k|^2, where |p|^2 is the same for all k. (N, P, 5), (N, K, 5) -> (N, P)."""
    return torch.baddbmm(centres.square().sum(2)[:, None], points, centres.transpose(1, 2), alpha=-2).argmin(2)


def _members(label: Tensor, count: int) -> Tensor:
    """(N, P) labels as (N, K, P) booleans."""
    return label[:, None] == torch.arange(count, device=label.device)[:, None]


@torch.no_grad()
def salient_mask(label: Tensor, maps: Tensor, keep: int, size: tuple[int, int]) -> Tensor:
    """The `keep` superpixels with the largest mean saliency, as a mask. (N, h, w), (N, *, *) -> (N, H, W) bool."""
    n, h, w = label.shape
    member = _members(label.flatten(1), int(label.max()) + 1).float()
    area = member.sum(2)
    mean = (member @ unit_maps(maps, (h, w)).reshape(n, -1, 1))[:, :, 0] / area.clamp(min=1)
    best = mean.masked_fill(area == 0, -1.0).topk(min(keep, member.shape[1]), dim=1).indices
    chosen = torch.zeros_like(mean).scatter_(1, best, 1.0).gather(1, label.flatten(1)).reshape(n, 1, h, w)
    return F.interpolate(chosen, size, mode="nearest")[:, 0] > 0.5
