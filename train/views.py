"""Several views of a test image, whose logits are averaged: mirrored, or ten crops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
from PIL import Image

from calibrant.preprocessing import Preprocessing
from calibrant.train.data.pixels import Pixels

Views = Literal["one", "flip", "ten-crop"]
COUNT: dict[str, int] = {"one": 1, "flip": 2, "ten-crop": 10}


def view_maker(preprocessing: Preprocessing, views: Views) -> Callable[[Image.Image], Pixels]:
    """image -> (views * H, W, 3), the views below one another; the first is the evaluation transform.

    "ten-crop": the centre and the four corners of the resized square, each also mirrored. Where the evaluation
    transform crops nothing, the four corners come from the image at 8/7 of the size.
    """
    height, width = preprocessing.size
    short = min(height, width)
    resize = preprocessing.resize if preprocessing.resize > short else math.ceil(short * 8 / 7)
    large = (math.ceil(height * resize / short), math.ceil(width * resize / short))
    around = replace(preprocessing, size=large, resize=resize)

    def make(image: Image.Image) -> Pixels:
        shown = [preprocessing.pixels(image)]
        if views == "ten-crop":
            whole = around.pixels(image)
            shown += [
                whole[top : top + height, left : left + width]
                for top in (0, large[0] - height)
                for left in (0, large[1] - width)
            ]
        if views != "one":
            shown += [view[:, ::-1] for view in shown]
        return np.concatenate(shown)

    return make
