"""Ready-made policies on whole images (TrivialAugment ...), colour jitter and erasing, each reproducible by position.

torchvision's versions are used: timm's fail on some images with current Pillow, and draw from global generators of
three libraries.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from PIL import Image

from calibrant.errors import ConfigError, did_you_mean
from calibrant.images.preprocessing import Preprocessing
from calibrant.plugins import registered
from calibrant.train.config import AugmentConfig
from calibrant.train.data.pixels import Pixels
from calibrant.train.seeds import derive, generator


class Policies:
    """pixels -> pixels, from (seed, epoch, position)."""

    def __init__(self, config: AugmentConfig, preprocessing: Preprocessing) -> None:
        self.erasing = config.erasing
        self.fill = np.round(255 * np.asarray(preprocessing.mean)).astype(np.uint8)  # zero, once normalised
        self._transforms: list[Callable[[Any], Any]] = []
        from torchvision import transforms as t

        if config.jitter:
            self._transforms.append(t.ColorJitter(config.jitter, config.jitter, config.jitter))
        made: dict[str, Callable[[], Any]] = {
            "trivial": t.TrivialAugmentWide, "rand": t.RandAugment, "auto": t.AutoAugment, "augmix": t.AugMix,
        }  # fmt: skip
        if config.policy != "none":
            self._transforms.append(made[config.policy]())
        self._transforms += [_of_plugin(name) for name in config.transforms]

    def __call__(self, pixels: Pixels, seed: int, epoch: int, position: int) -> Pixels:
        if self._transforms:
            image: Any = Image.fromarray(pixels)
            torch.default_generator.manual_seed(derive(seed, "policy", epoch, position))
            for transform in self._transforms:
                image = transform(image)
            pixels = np.asarray(image, np.uint8)
        return self._erase(pixels, seed, epoch, position) if self.erasing else pixels

    def _erase(self, pixels: Pixels, seed: int, epoch: int, position: int) -> Pixels:
        """With probability `erasing`, a box of 2 to 33 % of the area in the mean colour (Zhong et al. 2020)."""
        rng = generator(seed, "erase", epoch, position)
        if rng.random() >= self.erasing:
            return pixels
        height, width = pixels.shape[:2]
        area = height * width * rng.uniform(0.02, 1 / 3)
        ratio = math.exp(rng.uniform(math.log(0.3), math.log(1 / 0.3)))
        h, w = min(height, max(1, round(math.sqrt(area * ratio)))), min(width, max(1, round(math.sqrt(area / ratio))))
        top, left = int(rng.integers(0, height - h + 1)), int(rng.integers(0, width - w + 1))
        pixels = pixels.copy()
        pixels[top : top + h, left : left + w] = self.fill
        return pixels


def wanted(config: AugmentConfig) -> bool:
    return config.policy != "none" or config.jitter > 0 or config.erasing > 0 or bool(config.transforms)


def _of_plugin(name: str) -> Callable[[Any], Any]:
    """It draws from torch's generator, which is seeded for each picture, or from the one that it is handed."""
    known = registered("transforms")
    if name not in known:
        fix = did_you_mean(name, known) if known else "register it in a file and pass --plugin FILE.py"
        raise ConfigError(f'no transform "{name}"', where="augment.transforms", fix=fix)
    transform: Callable[..., Any] = known[name]
    if "rng" not in inspect.signature(transform).parameters:
        return transform

    def drawn(image: Any) -> Any:
        return transform(image, rng=np.random.default_rng(int(torch.randint(2**62, (1,)))))

    return drawn
