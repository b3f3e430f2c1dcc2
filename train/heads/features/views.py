"""Views of an image: the evaluation transform, its mirror, the whole image, and random crops.

A random view is a function of (seed, view, image id): it is the same whoever makes it, in whatever order.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import ConfigError
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.seeds import generator

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]  # (H, W, 3)
FIXED = ("eval", "flip", "full", "full-flip")
IN_GRAPH = ("eval", "flip")  # what a deployed file can make of one input
_CROP = re.compile(r"crop([1-9][0-9]*)")
_AREA, _RATIO, _TRIES = (0.4, 1.0), (3 / 4, 4 / 3), 10


def check_view(name: str) -> str:
    if name in FIXED or _CROP.fullmatch(name):
        return name
    raise ConfigError(f'no view "{name}"', fix=f"views are {', '.join(FIXED)}, and crop1, crop2, ... (random)")


def make_view(image: Image.Image, view: str, preprocessing: Preprocessing, *, seed: int, id: str) -> Pixels:
    """uint8 (H, W, 3) of the size that the preprocessing gives.

    eval: the evaluation transform; full: the same with the shorter side at the crop size, so that nothing but the ends
    of the longer side is cut; flip: mirrored; cropN: random area .4 to 1, ratio 3/4 to 4/3, mirrored half of the time.
    """
    if view in FIXED:
        chosen = replace(preprocessing, resize=min(preprocessing.size)) if view.startswith("full") else preprocessing
        pixels = chosen.pixels(image)
        return pixels[:, ::-1] if view.endswith("flip") else pixels
    check_view(view)
    return _random_crop(image, preprocessing, generator(seed, "view", view, id))


def _random_crop(image: Image.Image, preprocessing: Preprocessing, rng: np.random.Generator) -> Pixels:
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
