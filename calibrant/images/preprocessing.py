"""The evaluation transform: from a decoded picture to the pixels that a network sees.

One implementation for training's validation, prediction, serving and the dashboard, so that a deployed model sees what
it was evaluated on. It crosses the stages as a block in the run's config and in the deployed file's metadata.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import FormatError
from calibrant.images.decode import MAX_PIXELS

if TYPE_CHECKING:
    from PIL import Image

Crop = Literal["center", "squash", "cover"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]


@dataclass(frozen=True)
class Preprocessing:
    """Shorter side to `resize`, centre crop to `size`, (x/255 - mean) / std.

    With crop "squash" both sides go to `size`. With "cover" the picture is made small until it just covers `size`, of
    which min(size) / resize is kept: the same as "center" for a square, and more of the picture for any other shape.
    """

    size: tuple[int, int]  # height, width
    resize: int  # shorter side before the crop; not used by "squash"
    crop: Crop = "center"
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, block: Mapping[str, Any], *, where: str | Path) -> Preprocessing:
        try:
            height, width = (int(v) for v in block["size"])
            mean, std = tuple(map(float, block["mean"])), tuple(map(float, block["std"]))
            if len(mean) != 3 or len(std) != 3 or min(std) <= 0 or height < 1 or width < 1:
                raise ValueError("size, mean or std out of range")
            if block["crop"] not in get_args(Crop) or block["interpolation"] not in get_args(Interpolation):
                raise ValueError(f"{block['crop']} or {block['interpolation']} is not known")
            return cls(
                (height, width),
                int(block["resize"]),
                block["crop"],
                block["interpolation"],
                (mean[0], mean[1], mean[2]),
                (std[0], std[1], std[2]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise FormatError(f"damaged preprocessing block ({what})", where=where) from None

    @classmethod
    def of_timm(cls, config: Mapping[str, Any], size: tuple[int, int]) -> Preprocessing:
        """What timm's evaluation does by its data configuration: shorter side to floor(size / crop_pct), then the crop.

        For a size that is no square that is "cover", as in timm. Differs: crop_mode "border", which pads, is taken as
        "center", and cover's box is not rounded to the pixels of a resized picture.
        """
        interpolation, mean, std = str(config["interpolation"]), config["mean"], config["std"]
        return cls(
            size,
            math.floor(min(size) / float(config["crop_pct"])),
            "squash" if config["crop_mode"] == "squash" else "center" if size[0] == size[1] else "cover",
            interpolation if interpolation in get_args(Interpolation) else "bicubic",  # type: ignore[arg-type]
            (float(mean[0]), float(mean[1]), float(mean[2])),
            (float(std[0]), float(std[1]), float(std[2])),
        )

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """uint8 [H, W, 3]: resize and crop in one resampling step.

        Pillow reads beyond the box where the filter needs it, so this equals resizing the whole image and cropping
        after, to within 1/255 (the sides of the whole image would be rounded to integers), at three quarters of the
        work.
        """
        from PIL import Image

        height, width = self.size
        filter_ = getattr(Image.Resampling, self.interpolation.upper())
        box = self._box(*image.size) if self.crop == "center" else None
        if self.crop == "cover":
            return np.asarray(image.resize((width, height), filter_, box=self._cover(*image.size)), dtype=np.uint8)
        if box is not None and self.interpolation in ("nearest", "box"):
            across, down = self._whole(*image.size)
            # These jump from pixel to pixel, so the rounding of a box's sides to float32 would choose others.
            if across * down <= MAX_PIXELS:
                left, top = _offset(across, width), _offset(down, height)
                whole = image.resize((across, down), filter_)
                return np.asarray(whole.crop((left, top, left + width, top + height)), dtype=np.uint8)
        if (
            box is not None
            and _down_first(image.size, (width, height))
            and not _down_first(image.size, self._whole(*image.size))
        ):
            return _across_then_down(image, (width, height), filter_, box)
        return np.asarray(image.resize((width, height), filter_, box=box), dtype=np.uint8)

    def _whole(self, width: int, height: int) -> tuple[int, int]:
        """Sides of the whole image after the resize."""
        if width <= height:
            return self.resize, int(self.resize * height / width)
        return int(self.resize * width / height), self.resize

    def _box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The part of the source image that the centre crop keeps, in source pixels."""
        new_width, new_height = self._whole(width, height)
        left, top = _offset(new_width, self.size[1]), _offset(new_height, self.size[0])
        across, down = width / new_width, height / new_height
        right, bottom = (left + self.size[1]) * across, (top + self.size[0]) * down
        return left * across, top * down, min(right, width), min(bottom, height)

    def _cover(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The largest centred part with the shape of `size`, and of that the share min(size) / resize of each side."""
        scale = min(width / self.size[1], height / self.size[0]) * min(1.0, min(self.size) / self.resize)
        across, down = scale * self.size[1], scale * self.size[0]
        left, top = (width - across) / 2, (height - down) / 2
        return left, top, left + across, top + down

    def normalise(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """uint8 [..., H, W, 3] to float32 [..., 3, H, W], as the graph does it."""
        scale = (1.0 / (255.0 * np.asarray(self.std))).astype(np.float32)
        shift = (np.asarray(self.mean) / np.asarray(self.std)).astype(np.float32)
        return np.ascontiguousarray(np.moveaxis(pixels.astype(np.float32) * scale - shift, -1, -3))


def _offset(whole: int, part: int) -> int:
    """Where a centred part begins."""
    return max(0, round((whole - part) / 2.0))


def _down_first(image: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether Pillow resamples down before across, as it does since version 13 where the height loses more than twice
    what the width does. For the height of a box it takes that of the whole image."""
    import PIL

    lost = image[1] - size[1]
    return int(PIL.__version__.partition(".")[0]) >= 13 and lost > 0 and lost > 2 * (image[0] - size[0])


_REACH = 3.0  # of the widest filter (lanczos), in pixels of the result where it is smaller


def _across_then_down(
    image: Image.Image, size: tuple[int, int], filter_: Image.Resampling, box: tuple[float, float, float, float]
) -> NDArray[np.uint8]:
    """`image.resize(size, filter_, box)`, the passes in that order, in which the whole image would be resized.

    Between the passes values are rounded and clipped, so another order is another picture, by up to 25 levels.
    """
    left, top, right, bottom = box
    margin = _REACH * max(1.0, (bottom - top) / size[1]) + 2
    first, last = max(0, int(top - margin)), min(image.height, int(bottom + margin) + 1)
    rows = image.crop((0, first, image.width, last))
    across = rows.resize((size[0], rows.height), filter_, box=(left, 0, right, rows.height))
    return np.asarray(across.resize(size, filter_, box=(0, top - first, size[0], bottom - first)), dtype=np.uint8)
