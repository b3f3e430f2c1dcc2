"""Networks of one input channel: pictures are read in colour, and the first layer sees their brightness."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from calibrant.errors import ModelError

LUMA = (0.299, 0.587, 0.114)  # of ITU-R BT.601, as Pillow's mode "L" has them


def see_in_grey(network: Any, channels: int, name: str) -> None:
    """Put the brightness of RGB before the first layer of a network that was built for one channel.

    A hook and no layer of its own, so the names of the weights stay timm's. Mean and deviation of the normalisation are
    the same for all three channels there (evaluation_transform), so this is the brightness of the picture.
    """
    if channels == 3:
        return
    if channels != 1:
        raise ModelError(
            f"{channels} input channels, but pictures are read as red, green and blue",
            where="model.in_chans",
            fix="use 3, or 1 for grey",
        )
    names = (getattr(network, "pretrained_cfg", None) or {}).get("first_conv")
    layer = network
    for part in str(names).split("."):
        layer = getattr(layer, part, None)
    if not isinstance(layer, nn.Conv2d) or layer.in_channels != 1:
        raise ModelError(f"{name} has no single first convolution", where="model.in_chans", fix="use 3")
    layer.register_forward_pre_hook(_brightness)


def is_grey(network: nn.Module) -> bool:
    return any(_brightness in module._forward_pre_hooks.values() for module in network.modules())


def _brightness(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    x, *rest = inputs
    red, green, blue = LUMA
    return (red * x[:, 0:1] + green * x[:, 1:2] + blue * x[:, 2:3], *rest)
