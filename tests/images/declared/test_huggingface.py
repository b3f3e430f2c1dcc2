"""preprocessor_config.json, and the same pixels as transformers makes of it where that is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.declared.huggingface import of_hugging_face

VIT = {
    "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.25, 0.2], "resample": 2, "rescale_factor": 1 / 255, "size": {"height": 32, "width": 48},
}  # fmt: skip
CLIP = VIT | {"size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}}


def read(**changed: Any) -> Any:
    return of_hugging_face({**VIT, **changed}, "preprocessor_config.json")


def test_height_and_width_squash() -> None:
    p = read().preprocessing
    assert (p.size, p.crop, p.interpolation) == ((32, 48), "squash", "bilinear")
    assert (p.mean, p.std) == (pytest.approx((0.5, 0.4, 0.3)), pytest.approx((0.5, 0.25, 0.2)))
    assert read().guesses == ()


def test_shortest_edge_and_crop() -> None:
    declared = of_hugging_face(CLIP, "x.json")
    assert (declared.preprocessing.resize, declared.preprocessing.size) == (40, (32, 32))
    assert declared.preprocessing.crop == "center"
    assert any("within one pixel" in guess for guess in declared.guesses)


@pytest.mark.parametrize(("edge", "crop", "resize"), [(224, "center", 256), (384, "squash", 384)])
def test_convnext_crops_below_384_and_squashes_from_there(edge: int, crop: str, resize: int) -> None:
    p = read(size={"shortest_edge": edge}, crop_pct=0.875).preprocessing
    assert (p.crop, p.resize, p.size) == (crop, resize, (edge, edge))


def test_bytes_that_are_not_rescaled() -> None:
    """(x - mean) / std on 0..255: x/255 minus mean/255, over std/255."""
    p = read(do_rescale=False, image_mean=[127.5] * 3, image_std=[63.75] * 3).preprocessing
    assert p.mean == pytest.approx((0.5,) * 3)
    assert p.std == pytest.approx((0.25,) * 3)


def test_no_normalisation_is_0_to_1() -> None:
    p = read(do_normalize=False).preprocessing
    assert (p.mean, p.std) == ((0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize("key", ["resample", "do_rescale", "rescale_factor", "do_normalize"])
def test_a_missing_key_is_named_and_never_remembered(key: str) -> None:
    block = {k: v for k, v in VIT.items() if k != key}
    assert [g for g in of_hugging_face(block, "x.json").guesses if key in g]


def test_a_crop_size_without_center_crop_is_ignored() -> None:
    """BEiT's files have one; its default of do_center_crop changed between versions."""
    assert read(crop_size={"height": 8, "width": 8}, do_center_crop=False).preprocessing.crop == "squash"
    assert [g for g in read(crop_size={"height": 8, "width": 8}).guesses if "do_center_crop" in g]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"do_center_crop": True, "crop_size": {"height": 24, "width": 24}}, "resizes to 32 x 48 whatever the shape"),
        ({"rescale_offset": True}, "rescale_offset is not known"),
        ({"image_mean": None}, "has no image_mean"),
        ({"size": {"longest_edge": 3}}, "longest_edge"),
        ({"resample": 9}, "resample 9"),
        ({"size": {"shortest_edge": 40}}, "keeps the shape of the picture"),
        ({"image_mean": [0.5, 0.5]}, "expected three numbers"),
    ],
)
def test_what_cannot_be_expressed_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        read(**changed)


def test_channels_flipped() -> None:
    assert read(do_flip_channel_order=True).bgr


@pytest.mark.parametrize("block", [VIT, CLIP])
def test_pixels_as_transformers_makes_them(block: dict[str, Any]) -> None:
    """A squash agrees within one level of its torchvision path; a crop too, where its margin is even."""
    transformers = pytest.importorskip("transformers")
    name = "CLIPImageProcessor" if "crop_size" in block else "ViTImageProcessor"
    processor = getattr(transformers, name)(**block)
    declared = of_hugging_face(block, "x.json")
    rng = np.random.default_rng(0)
    for height, width in ((60, 80), (100, 40), (40, 48)):
        image = Image.fromarray(np.kron(rng.integers(0, 256, (height // 4, width // 4, 3)), np.ones((4, 4, 1)))
                                .astype(np.uint8))  # fmt: skip
        theirs = np.asarray(processor(image, return_tensors="np")["pixel_values"][0])
        ours = declared.preprocessing.normalise(declared.preprocessing.pixels(image))
        level = 1 / (255 * min(block["image_std"]))
        assert np.abs(theirs - ours).max() <= 1.01 * level
