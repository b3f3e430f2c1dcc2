"""preprocessor_config.json of Hugging Face's transformers, as versions 4.57 and 5 write it.

A key that is missing is never filled with what a class once had as its default: those changed between versions under
the same class name. It is named as a guess instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrant.errors import DataError
from calibrant.images.declared.declaration import SCALED, Declared, three
from calibrant.images.preprocessing import Interpolation, Preprocessing

RESAMPLE: dict[int, Interpolation] = {
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming",
}  # fmt: skip
CROP_SHARE = 384  # from this size on, ConvNext's transform squashes


def of_hugging_face(block: Mapping[str, Any], where: str | Path) -> Declared:
    guesses: list[str] = []
    preprocessing = _geometry(block, where, guesses)
    mean, std = _statistics(block, where, guesses)
    preprocessing = replace(preprocessing, mean=mean, std=std)
    bgr = bool(block.get("do_flip_channel_order", False))
    name = Path(where).name
    return Declared(preprocessing, bgr, name, tuple(guesses))


def _geometry(block: Mapping[str, Any], where: str | Path, guesses: list[str]) -> Preprocessing:
    filter_ = block.get("resample")
    if filter_ is None:
        guesses.append("resample is not in the file, taken as bicubic")
    elif filter_ not in RESAMPLE:
        raise DataError(f"resample {filter_} is not known", where=where, fix="0 to 5, as Pillow numbers them")
    interpolation = "bicubic" if filter_ is None else RESAMPLE[int(filter_)]
    if block.get("do_resize", True) is False and not block.get("do_center_crop"):
        raise DataError("does not resize, so it says no size", where=where, fix="give --size, --mean and --std")
    size, crop = block.get("size"), block.get("crop_size")
    if size is None:
        raise DataError("has no size", where=where, fix="give --size, --mean and --std instead")
    if not isinstance(size, Mapping):
        size = {"shortest_edge": size} if block.get("do_center_crop") else {"height": size, "width": size}
    cropped = block.get("do_center_crop")
    if cropped is None:
        cropped = False
        if crop is not None:
            guesses.append("do_center_crop is not in the file, taken as false")
    if "height" in size and "width" in size:
        whole = int(size["height"]), int(size["width"])
        if cropped and _box(crop, where) != whole:
            raise DataError(
                f"resizes to {whole[0]} x {whole[1]} whatever the shape and then crops, which cannot be expressed",
                where=where,
                fix="leave --preprocess out and give --size, --resize, --crop, --mean and --std, near as they come",
            )
        return Preprocessing(whole, max(whole), "squash", interpolation)
    edge = size.get("shortest_edge")
    if edge is None:
        raise DataError(f"size {dict(size)} is not known", where=where, fix="give --size and --resize")
    edge = int(edge)
    if "crop_pct" in block and block["crop_pct"] is not None:  # ConvNext
        if edge >= CROP_SHARE:
            return Preprocessing((edge, edge), edge, "squash", interpolation)
        return Preprocessing((edge, edge), int(edge / float(block["crop_pct"])), "center", interpolation)
    if not cropped:
        raise DataError("keeps the shape of the picture, so pictures have no one size", where=where, fix="give --size")
    guesses.append("the crop lies within one pixel of transformers' where its margin is odd")
    return Preprocessing(_box(crop, where), edge, "center", interpolation)


def _box(crop: Any, where: str | Path) -> tuple[int, int]:
    if isinstance(crop, Mapping) and {"height", "width"} <= crop.keys():
        return int(crop["height"]), int(crop["width"])
    if isinstance(crop, int):
        return crop, crop
    raise DataError(f"crop_size {crop} is not known", where=where, fix="give --size and --resize")


def _statistics(
    block: Mapping[str, Any], where: str | Path, guesses: list[str]
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and std in 0..1 of what goes into the network: (x factor - mean) / std."""
    if block.get("rescale_offset"):
        raise DataError("rescale_offset is not known", where=where, fix="give --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5")
    rescale = block.get("do_rescale")
    if rescale is None:
        rescale = True
        guesses.append("do_rescale is not in the file, taken as true (1/255)")
    factor = float(block.get("rescale_factor") or 1 / 255) if rescale else 1.0
    if rescale and "rescale_factor" not in block:
        guesses.append("rescale_factor is not in the file, taken as 1/255")
    normalise = block.get("do_normalize")
    if normalise is None:
        normalise = "image_mean" in block
        guesses.append(f"do_normalize is not in the file, taken as {str(normalise).lower()}")
    if not normalise:
        mean, std = SCALED
    elif block.get("image_mean") is None or block.get("image_std") is None:
        raise DataError("normalises but has no image_mean and image_std", where=where, fix="give --mean and --std")
    else:
        mean, std = (three(block[f"image_{k}"], f"image_{k}", where) for k in ("mean", "std"))
    unit = 255 * factor  # x factor = (x/255) unit
    return three([m / unit for m in mean], "mean", where), three([s / unit for s in std], "std", where)
