"""The evaluation transform equals resize-then-crop, and an image that cannot be used is named."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError, FormatError
from calibrant.images.preprocessing import Preprocessing, open_image


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


def test_exif_rotation_is_applied() -> None:
    image = picture(40, 20)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    stream = io.BytesIO()
    image.save(stream, "JPEG", exif=exif)
    assert open_image(stream.getvalue()).size == (20, 40)


@pytest.mark.parametrize(
    "damage", [b"Exif\0\0junk", b"Exif\0\0MM\0*\0\0\0\x08\0\x05\x01", b"x", b"Exif\0\0II*\0\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # which says that something is wrong with it
def test_a_picture_with_damaged_exif_is_taken_as_it_lies(kind: str, damage: bytes) -> None:
    """Cameras and editors write such, and every viewer shows it."""
    image, stream = picture(40, 20), io.BytesIO()
    image.save(stream, kind, exif=damage)
    assert open_image(stream.getvalue()).size == (40, 20)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    stream = io.BytesIO()
    picture(8, 8).convert(mode).save(stream, "TIFF")
    assert open_image(stream.getvalue()).mode == "RGB"


def test_unusable_images_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    stream = io.BytesIO()
    picture(64, 64).save(stream, "JPEG")
    (tmp_path / "cut.jpg").write_bytes(stream.getvalue()[:300])
    (tmp_path / "empty.png").write_bytes(b"")
    for name in ("text.jpg", "cut.jpg", "empty.png", "missing.jpg"):
        with pytest.raises(DataError, match=name):
            open_image(tmp_path / name)


def test_a_picture_too_large_is_refused_from_its_header() -> None:
    # 30,000 x 30,000 pixels in about a hundred bytes: only the header is there to be read.
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    body = zlib.compress(b"")
    png += struct.pack(">I", len(body)) + b"IDAT" + body + struct.pack(">I", zlib.crc32(b"IDAT" + body))
    with pytest.raises(DataError):
        open_image(png)
    stream = io.BytesIO()
    picture(100, 100).save(stream, "PNG")
    with pytest.raises(DataError, match="pixels are more than"):
        open_image(stream.getvalue(), max_pixels=9_999)
