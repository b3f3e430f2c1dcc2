"""A large float32 linear layer on the CPU by oneDNN: on AMD processors twice as fast as by MKL, which torch takes.

Torch reaches oneDNN's float32 product only through an operator made for its compiler. It is used where a probe finds
that it exists and gives the right numbers; everywhere else this is F.linear.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

_WORTH_IT = 1 << 22  # multiplications; below, the call costs more than it saves


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        return None, _product(grads[0].T.contiguous(), x.T.contiguous(), None), grads[0].sum(0)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


@cache
def _usable() -> bool:
    """The operator is there and means what it meant: x W' + b."""
    x, weight, bias = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(4, 3) - 5, torch.arange(4.0)
    try:
        with torch.no_grad():
            return bool(torch.equal(_product(x, weight, bias), x @ weight.T + bias))
    except (AttributeError, RuntimeError, TypeError):
        return False


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x W' + b in the precision of x; x (N, K), weight (H, K), bias (H,)."""
    weight, bias = weight.to(x.dtype), bias.to(x.dtype)
    plain = x.device.type != "cpu" or x.dtype != torch.float32 or x.requires_grad
    if plain or x.numel() * len(weight) < _WORTH_IT or not _usable():
        return F.linear(x, weight, bias)
    out: Tensor = _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return out
