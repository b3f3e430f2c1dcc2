"""Heads that read the class token at several depths: cross-layer aggregation, and its linear baseline."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PointwiseLinear(nn.Linear):
    """A Linear that also loads the weight of a 1 x 1 convolution, (out, in, 1)."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        key = f"{prefix}weight"
        weight = state_dict.get(key)
        if weight is not None and weight.dim() == 3 and weight.shape[-1] == 1:
            state_dict[key] = weight[..., 0]
        super()._load_from_state_dict(state_dict, prefix, *args)


class CLAHead(nn.Module):
    """Cross-layer aggregation: BN_D, depth-wise conv over T depths D -> g D, BN_gD, GELU, linear to classes.

    Input F: (B, D, T), raw class tokens in depth order; the depth-wise kernel covers all T depths, so what is left is
    one value per channel. Output channels g c .. g c + g - 1 read input channel c. g = 2. Framework initialisation.
    Source: Rios et al. 2025 (arXiv 2501.00243), spec/clca.md 2.
    Differs: the point-wise convolution is a Linear (the same numbers), so that an export can fold into it.
    """

    def __init__(self, dim: int, depths: int, classes: int, multiplier: int = 2) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm1d(dim)
        self.dw = nn.Conv1d(dim, multiplier * dim, depths, stride=depths, groups=dim)
        self.bn2 = nn.BatchNorm1d(multiplier * dim)
        self.width = multiplier * dim
        self.pw = classifier(self.width, classes)

    def forward(self, marks: Tensor) -> Tensor:
        """(B, D, T) -> (B, g D), what the last linear layer reads."""
        return F.gelu(self.bn2(self.dw(self.bn1(marks)))).flatten(1)


class IFAHead(nn.Module):
    """Baseline: one Linear T -> 1 shared by all channels, ReLU, LayerNorm, linear to classes (spec/clca.md 2)."""

    def __init__(self, dim: int, depths: int, classes: int) -> None:
        super().__init__()
        self.mix = nn.Linear(depths, 1)
        self.ln = nn.LayerNorm(dim)
        self.width = dim
        self.pw = classifier(dim, classes)

    def forward(self, marks: Tensor) -> Tensor:
        """(B, D, T) -> (B, D)."""
        mixed: Tensor = self.ln(F.relu(self.mix(marks)[..., 0]))
        return mixed


def classifier(width: int, classes: int) -> nn.Module:
    """The last layer; without classes an identity, as in timm."""
    return PointwiseLinear(width, classes) if classes > 0 else nn.Identity()


def fold(head: CLAHead) -> tuple[Tensor, Tensor]:
    """Both batch norms and the depth-wise convolution as one affine map per channel.

    h[g c + j] = sum_t W[g c + j, t] F[c, t] + b[g c + j]; returns W (g D, T) and b (g D), computed in float64.
    Exact in evaluation because the convolution has no padding.
    """
    one, two = (_affine(bn) for bn in (head.bn1, head.bn2))
    multiplier = head.dw.out_channels // head.dw.in_channels
    w = head.dw.weight[:, 0].double()
    scale = one[0].repeat_interleave(multiplier)
    shift = one[1].repeat_interleave(multiplier)
    bias = head.dw.bias
    b = w.sum(1) * shift + (0 if bias is None else bias.double())
    weight = w * scale[:, None] * two[0][:, None]
    return weight.float(), (b * two[0] + two[1]).float()


def _affine(bn: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError("a batch norm without running statistics cannot be folded")
    scale = bn.weight.double() / torch.sqrt(bn.running_var.double() + bn.eps)
    return scale, bn.bias.double() - bn.running_mean.double() * scale
