"""Views of an image: the evaluation transform, its mirror, the whole image, random crops, and policies on these.

A random view is a function of (seed, view, image id): it is the same whoever makes it, in whatever order.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.seeds import derive, generator

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]  # (H, W, 3)
FIXED = ("eval", "flip", "full", "full-flip")
IN_GRAPH = ("eval", "flip")  # what a deployed file can make of one input
_RANDOM = re.compile(r"(crop|rand|trivial|augmix|colour|erase|cutmix|superpixel|transplant)([1-9][0-9]*)")
_POLICIES: dict[str, dict[str, Any]] = {
    "rand": {"policy": "rand"}, "trivial": {"policy": "trivial"}, "augmix": {"policy": "augmix"},
    "colour": {"jitter": 0.4}, "erase": {"erasing": 1.0},
}  # fmt: skip
_ONE_AT_A_TIME = Lock()  # torchvision's policies draw from torch's global generator, and images are made in threads
_AREA, _RATIO, _TRIES = (0.4, 1.0), (3 / 4, 4 / 3), 10


def check_view(name: str) -> str:
    if name in FIXED or _RANDOM.fullmatch(name):
        return name
    kinds = "crop1, crop2, ..., and likewise rand, trivial, augmix, colour, erase, cutmix, superpixel, transplant"
    raise ConfigError(f'no view "{name}"', fix=f"views are {', '.join(FIXED)}, and at random {kinds}")


def make_view(image: Image.Image, view: str, preprocessing: Preprocessing, *, seed: int, id: str) -> Pixels:
    """uint8 (H, W, 3) of the size that the preprocessing gives.

    eval: the evaluation transform; full: the same with the shorter side at the crop size, so that nothing but the ends
    of the longer side is cut; flip: mirrored; cropN: random area .4 to 1, ratio 3/4 to 4/3, mirrored half of the time;
    randN, trivialN, augmixN, colourN, eraseN: such a crop through RandAugment, TrivialAugment, AugMix, a change of
    brightness, contrast and saturation by up to 40 %, or with a box in the mean colour. Of two images: mixed_views.py.
    """
    if view in FIXED:
        chosen = replace(preprocessing, resize=min(preprocessing.size)) if view.startswith("full") else preprocessing
        pixels = chosen.pixels(image)
        return pixels[:, ::-1] if view.endswith("flip") else pixels
    found = _RANDOM.fullmatch(check_view(view))
    assert found is not None
    pixels = random_crop(image, preprocessing, generator(seed, "view", view, id))
    return pixels if found[1] == "crop" else _policy(pixels, found[1], preprocessing, derive(seed, view, id))


def _policy(pixels: Pixels, kind: str, preprocessing: Preprocessing, seed: int) -> Pixels:
    import torch

    from calibrant.train.augment.policies import Policies
    from calibrant.train.config import AugmentConfig

    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        return Policies(AugmentConfig(**_POLICIES[kind]), preprocessing)(np.ascontiguousarray(pixels), seed, 0, 0)


def random_crop(image: Image.Image, preprocessing: Preprocessing, rng: np.random.Generator) -> Pixels:
    from PIL import Image as Pillow

    width, height = image.size
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1])))
        ratio *= preprocessing.size[1] / preprocessing.size[0]
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            break
    else:
        across, down = preprocessing.size[1], preprocessing.size[0]
        scale = min(width / across, height / down)
        w, h = scale * across, scale * down
    left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
    filter_ = getattr(Pillow.Resampling, preprocessing.interpolation.upper())
    size = (preprocessing.size[1], preprocessing.size[0])
    pixels = np.asarray(image.resize(size, filter_, box=(left, top, left + w, top + h)), np.uint8)
    return pixels[:, ::-1] if rng.random() < 0.5 else pixels
