"""`--device` of the commands on features."""

from __future__ import annotations

import torch

from calibrant.errors import ConfigError


def chosen_device(name: str) -> torch.device:
    """auto: the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f'"{name}" is not a device', where="--device", fix="use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("this machine has no CUDA device", where=f"--device {name}", fix="use cpu or auto")
    return device
