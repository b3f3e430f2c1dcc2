"""How long a backbone takes for an image, measured on a few: what a plan with a time budget starts from."""

from __future__ import annotations

import time

import torch

from calibrant.train.heads.features.backbone import Backbone

_IMAGES, _ROUNDS = 4, 3


@torch.inference_mode()
def seconds_an_image(backbone: Backbone, device: torch.device) -> float:
    """The median of a few small batches, after one that warms up."""
    backbone = backbone.to(device).eval()
    x = torch.zeros(_IMAGES, 3, *backbone.model.input_size, device=device)
    took = []
    for _ in range(_ROUNDS + 1):
        start = time.perf_counter()
        backbone(x).float().sum().item()  # item() waits for a GPU
        took.append(time.perf_counter() - start)
    return sorted(took[1:])[_ROUNDS // 2] / _IMAGES
