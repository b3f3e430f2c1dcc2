"""Hashes: of the same picture near, of another far, by hand where bits can be told."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from calibrant.images.audit.fingerprint import NEAR, hashes, is_blank


def scene(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((240, 200), Image.Resampling.BICUBIC)


def apart(a: Image.Image, b: Image.Image) -> int:
    return sum((x ^ y).bit_count() for x, y in zip(hashes(a), hashes(b), strict=True))


def test_a_smaller_and_recompressed_copy_is_near() -> None:
    stream = io.BytesIO()
    scene(1).resize((120, 100)).save(stream, "JPEG", quality=60)
    assert apart(scene(1), Image.open(stream)) <= NEAR


def test_other_pictures_are_far() -> None:
    assert min(apart(scene(i), scene(j)) for i in range(8) for j in range(i)) > NEAR


def test_brightening_to_the_right_sets_every_bit_of_d_hash_and_its_mirror_none() -> None:
    ramp = Image.fromarray(np.tile(np.linspace(0, 250, 90).astype(np.uint8), (80, 1)))
    falling = ramp.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    assert hashes(ramp)[1] == 2**64 - 1
    assert hashes(falling)[1] == 0


def test_one_colour_is_blank() -> None:
    assert is_blank(Image.new("RGB", (50, 50), "white"))
    assert not is_blank(scene(1))
