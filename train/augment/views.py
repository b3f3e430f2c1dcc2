"""Several views of a test image, whose logits are averaged: mirrored, or ten crops."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from PIL import Image

from calibrant.images.preprocessing import Preprocessing
from calibrant.train.data.pixels import Pixels

Views = Literal["one", "flip", "ten-crop"]
COUNT: dict[str, int] = {"one": 1, "flip": 2, "ten-crop": 10}


@dataclass(frozen=True)
class ViewMaker:
    """image -> (views * H, W, 3), the views below one another; the first is the evaluation transform.

    "ten-crop": the centre and the four corners of the resized square, each also mirrored. Where the evaluation
    transform crops nothing, the four corners come from the image at 8/7 of the size.
    """

    preprocessing: Preprocessing
    views: Views

    def __call__(self, image: Image.Image) -> Pixels:
        height, width = self.preprocessing.size
        shown = [self.preprocessing.pixels(image)]
        if self.views == "ten-crop":
            around = self._around()
            whole = around.pixels(image)
            shown += [
                whole[top : top + height, left : left + width]
                for top in (0, around.size[0] - height)
                for left in (0, around.size[1] - width)
            ]
        if self.views != "one":
            shown += [view[:, ::-1] for view in shown]
        return np.concatenate(shown)

    def _around(self) -> Preprocessing:
        """The whole resized square, of which the evaluation transform shows the centre."""
        height, width = self.preprocessing.size
        short, resize = min(height, width), self.preprocessing.resize
        resize = resize if resize > short else math.ceil(short * 8 / 7)
        large = (math.ceil(height * resize / short), math.ceil(width * resize / short))
        return replace(self.preprocessing, size=large, resize=resize)
