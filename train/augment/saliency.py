"""Where in an image the evidence is: maps that superpixel mixing and patch transplants choose their regions by."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant.errors import ModelError
from calibrant.train.model.feature_model import FeatureModel

# (images (N, 3, H, W) normalised, labels (N,)) -> (N, h, w), any h and w, larger where more speaks for the label
Saliency = Callable[[Tensor, Tensor], Tensor]
Layout = Literal["NCHW", "NHWC", "tokens"]

_LOGITS_AT_ONCE = 1 << 23  # numbers; a map of many positions and classes is made image by image


@dataclass(frozen=True)
class ClassMap:
    """The logit of the label at every position of the last feature map (or of every patch token).

    M_y(i, j) = head(t_ij)_y, where t = forward_features(x) and head is all that the model does behind it, applied to
    one position as if it were the whole image. For average pooling and a linear head this is the class activation map
    of Zhou et al. 2016 plus the bias, and its mean over positions is the logit. The network runs once more, in eval
    mode and without gradient, so batch statistics and random numbers are left alone.
    """

    model: FeatureModel
    layout: Layout
    prefix: int = 0  # tokens: how many come before the patches
    autocast: Callable[[], AbstractContextManager[None]] = nullcontext

    @torch.no_grad()
    def __call__(self, x: Tensor, labels: Tensor) -> Tensor:
        training = self.model.training
        self.model.eval()
        try:
            with self.autocast():
                t = self.model.network.forward_features(x)  # type: ignore[operator]
                (h, w), positions = _positions(t, self.layout, self.prefix, _grid_of(self.model.network))
                y = labels.clamp(min=0).repeat_interleave(h * w)  # a row that no loss sees may carry any map
                size = max(1, _LOGITS_AT_ONCE // self.model.num_classes)
                parts = [
                    self.model.logits_of(rows).float().gather(1, at[:, None])[:, 0]
                    for rows, at in zip(torch.split(positions, size), torch.split(y, size), strict=True)
                ]
        finally:
            self.model.train(training)
        return torch.cat(parts).reshape(len(x), h, w)


def class_map(model: FeatureModel, autocast: Callable[[], AbstractContextManager[None]] = nullcontext) -> ClassMap:
    """The class map of a model, tried on a random image; a model whose features have no positions is refused."""
    parameter = next(model.parameters())
    x = torch.randn(1, 3, *model.input_size, generator=torch.Generator().manual_seed(0)).to(parameter)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            t = model.network.forward_features(x)  # type: ignore[operator]
            for layout, prefix in _candidates(t, model.network):
                try:
                    _, positions = _positions(t, layout, prefix, _grid_of(model.network))
                    logits = model.logits_of(positions[:2])
                except Exception:  # noqa: BLE001, S112 - a layout of another family; timm raises anything on it
                    continue
                if logits.shape == (min(2, len(positions)), model.num_classes):
                    return ClassMap(model, layout, prefix, autocast)
    finally:
        model.train(training)
    raise ModelError(
        f"{type(model.network).__name__} has no feature map whose positions its head can read",
        where="augment.saliency",
        fix='use saliency = "spectral", which needs no network',
    )


def _candidates(t: Any, network: Any) -> list[tuple[Layout, int]]:
    if not isinstance(t, Tensor):
        return []
    if t.ndim == 4:
        first: list[tuple[Layout, int]] = [("NCHW", 0), ("NHWC", 0)]
        return first if t.shape[1] == network.num_features or t.shape[3] != network.num_features else first[::-1]
    if t.ndim != 3:
        return []
    grid = _grid_of(network)
    if grid is not None:
        return [("tokens", t.shape[1] - math.prod(grid))] if t.shape[1] >= math.prod(grid) else []
    rest = [(prefix, t.shape[1] - prefix) for prefix in (0, 1, 2) if t.shape[1] > prefix]
    return [("tokens", prefix) for prefix, count in rest if math.isqrt(count) ** 2 == count]


def _grid_of(network: Any) -> tuple[int, int] | None:
    """Rows and columns of patches, where the tokens are those of a patch embedding and all still there."""
    grid = getattr(getattr(network, "patch_embed", None), "grid_size", None)
    return None if grid is None or getattr(network, "stages", None) is not None else (int(grid[0]), int(grid[1]))


def _positions(t: Tensor, layout: Layout, prefix: int, grid: tuple[int, int] | None) -> tuple[tuple[int, int], Tensor]:
    """(h, w), and every position as a feature map or token sequence of its own, image by image, row by row."""
    if layout == "NCHW":
        return (t.shape[2], t.shape[3]), t.permute(0, 2, 3, 1).reshape(-1, t.shape[1], 1, 1)
    if layout == "NHWC":
        return (t.shape[1], t.shape[2]), t.reshape(-1, 1, 1, t.shape[3])
    patches = t[:, prefix:]
    side = math.isqrt(patches.shape[1])
    h, w = grid if grid is not None else (side, side)
    if h * w != patches.shape[1]:
        raise ValueError(f"{patches.shape[1]} tokens are no grid of {h} x {w}")
    # The token stands at every place, so that pooling by class token and by mean both read it.
    return (h, w), patches.reshape(-1, 1, t.shape[2]).expand(-1, prefix + 1, -1)


@torch.no_grad()
def spectral_residual(x: Tensor, labels: Tensor | None = None) -> Tensor:
    """What stands out from an image's own statistics (Hou & Zhang 2007); needs no network and no label.

    (N, 3, H, W) -> (N, h, w).
    S = G * |IFFT(exp(R + i P))|^2, R = log A - box3(log A), with A and P the amplitude and phase of the spectrum of the
    grey image at 64 px or less, and G a Gaussian.
    """
    grey = shrink(x, 64).float().mean(1)
    spectrum = torch.fft.fft2(grey)
    log_a = spectrum.abs().clamp(min=1e-8).log()
    mean = F.avg_pool2d(F.pad(log_a[:, None], (1, 1, 1, 1), mode="circular"), 3, stride=1)[:, 0]
    phase = torch.polar(torch.exp(log_a - mean), spectrum.angle())
    power = torch.fft.ifft2(phase).abs().square()
    at = torch.arange(-4, 5, device=x.device, dtype=power.dtype)
    g = torch.exp(-at.square() / (2 * 2.5**2))
    g = g / g.sum()
    power = F.conv2d(power[:, None], g.reshape(1, 1, 1, -1), padding=(0, 4))
    return F.conv2d(power, g.reshape(1, 1, -1, 1), padding=(4, 0))[:, 0]


def shrink(x: Tensor, side: int) -> Tensor:
    """The images averaged over whole blocks, as small as keeps the longer side at most `side`. (N, K, H, W)."""
    block = -(-max(x.shape[2:]) // side)
    return x if block == 1 else F.interpolate(x, scale_factor=1 / block, mode="area", recompute_scale_factor=True)


def unit_maps(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps brought to `size` (bilinear) and to [0, 1], each by its own extremes; a flat map becomes zero."""
    maps = F.interpolate(maps[:, None].float(), size, mode="bilinear", align_corners=False)[:, 0]
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / (high - low).clamp(min=1e-12)
