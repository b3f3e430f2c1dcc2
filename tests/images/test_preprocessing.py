"""The evaluation transform equals resize-then-crop."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import FormatError
from calibrant.images.preprocessing import Preprocessing


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (256, 256), (301, 299), (64, 1000)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_pixels_equal_resize_then_crop_within_two_levels(width: int, height: int, interpolation: str) -> None:
    image = picture(width, height)
    size, resize = 112, 128
    short = min(width, height)
    whole = image.resize(
        (int(resize * width / short), int(resize * height / short)), Image.Resampling[interpolation.upper()]
    )
    left, top = round((whole.width - size) / 2), round((whole.height - size) / 2)
    expected = np.asarray(whole.crop((left, top, left + size, top + size)), int)
    got = Preprocessing((size, size), resize, interpolation=interpolation).pixels(image)  # type: ignore[arg-type]
    assert got.dtype == np.uint8
    assert got.shape == (112, 112, 3)
    difference = np.abs(got.astype(int) - expected)
    # Where a side is rounded to an integer the grids differ by a part of a pixel; none of these sides is stretched.
    assert difference.max() <= (2 if (width, height) != (301, 299) else 4)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "lanczos", "hamming", "box", "nearest"])
@pytest.mark.parametrize("size", [112, 300])
def test_pixels_of_pure_noise_are_those_of_resize_then_crop(size: int, interpolation: str) -> None:
    """Noise shows what smooth pictures hide: Pillow 13 resamples a part of a tall image down before across, which
    rounds and clips between the passes otherwise than for the whole image, by 25 levels."""
    rng = np.random.default_rng(1)
    resize = size * 8 // 7
    sides = [(300, 400), (400, 300), (375, 500), (231, 777), (37, 900), (900, 37), (1, 60), (60, 1), (1, 1), (301, 299)]
    for width, height in [*sides, *rng.integers(20, 500, (8, 2)).tolist()]:
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3)).astype(np.uint8))
        short = min(width, height)
        whole = image.resize((int(resize * width / short), int(resize * height / short)),
                             Image.Resampling[interpolation.upper()])  # fmt: skip
        left, top = round((whole.width - size) / 2), round((whole.height - size) / 2)
        expected = np.asarray(whole.crop((left, top, left + size, top + size)), int)
        got = Preprocessing((size, size), resize, interpolation=interpolation).pixels(image)  # type: ignore[arg-type]
        assert np.abs(got.astype(int) - expected).max() <= 2, (width, height)


def test_squash_uses_the_whole_image() -> None:
    image = picture(300, 100)
    expected = np.asarray(image.resize((32, 48), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(Preprocessing((48, 32), 64, crop="squash").pixels(image), expected)


def test_normalise_is_the_textbook_formula() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3) * 10
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.5)
    expected = ((pixels / 255 - mean) / std).transpose(0, 3, 1, 2)
    got = Preprocessing((2, 4), 4, mean=mean, std=std).normalise(pixels)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_the_block_round_trips_and_a_damaged_one_is_refused() -> None:
    before = Preprocessing((224, 224), 256, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    assert Preprocessing.from_dict(before.to_dict(), where="x") == before
    with pytest.raises(FormatError, match="damaged preprocessing"):
        Preprocessing.from_dict({**before.to_dict(), "std": [0, 0, 0]}, where="x")


def test_a_picture_that_would_be_resized_into_a_huge_one_is_cut_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def seen(image: Image.Image, size: tuple[int, int], *arguments: object, **options: object) -> Image.Image:
        made.append(size)
        return resize(image, size, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Image.Image, "resize", seen)
    long = Image.new("RGB", (2000, 10), (10, 20, 30))
    transform = Preprocessing((16, 16), 16, interpolation="box")
    assert transform.pixels(long).shape == (16, 16, 3)
    assert (3200, 16) in made  # the whole, since box filters jump from pixel to pixel
    made.clear()
    monkeypatch.setattr("calibrant.images.preprocessing.MAX_PIXELS", 50_000)
    assert transform.pixels(long).shape == (16, 16, 3)
    assert max(across * down for across, down in made) < 50_000


@pytest.mark.parametrize(("width", "height"), [(400, 200), (300, 200), (200, 400), (900, 200)])
def test_cover_shows_the_largest_part_of_the_shape_asked_for(width: int, height: int) -> None:
    """Against resizing the whole picture until it just covers 48 x 96 (over 0.8), and cutting out the middle."""
    image = picture(width, height)
    preprocessing = Preprocessing((48, 96), 60, "cover", "bilinear")
    scale = max(120 / width, 60 / height)
    whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left, top = (whole.width - 96) // 2, (whole.height - 48) // 2
    expected = np.asarray(whole.crop((left, top, left + 96, top + 48)), int)
    got = preprocessing.pixels(image)
    assert got.shape == (48, 96, 3)
    assert np.abs(got.astype(int) - expected).mean() < 2


def test_cover_of_a_square_is_center() -> None:
    image = picture(300, 200)
    centre, cover = (Preprocessing((64, 64), 80, crop).pixels(image) for crop in ("center", "cover"))
    assert np.abs(centre.astype(int) - cover).max() <= 2


def test_timm_covers_a_size_that_is_no_square() -> None:
    config = {"interpolation": "bicubic", "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.8, "crop_mode": "center"}
    wide = Preprocessing.of_timm(config, (48, 96))
    assert (wide.crop, wide.resize) == ("cover", 60)
    assert Preprocessing.of_timm(config, (48, 48)).crop == "center"
    assert Preprocessing.from_dict(wide.to_dict(), where="card") == wide
