"""One decoder: upright RGB of every kind of picture, and a picture that cannot be used is named."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from calibrant.errors import DataError
from calibrant.images import decode
from calibrant.images.decode import image_suffixes, open_image, unread_suffixes


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "MPO"])
def test_a_large_file_in_memory_is_read_where_it_lies(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(picture(90, 70), kind)
    wanted = np.asarray(open_image(data))
    monkeypatch.setattr(decode, "_QUICKLY_COPIED", 100)
    monkeypatch.setattr(decode.io, "BytesIO", None)
    assert np.array_equal(np.asarray(open_image(memoryview(data))), wanted)
    with pytest.raises(DataError):
        open_image(memoryview(data[: len(data) // 2]))


SIXTEEN = np.array([[0, 255, 256], [0x7FFF, 0x8000, 0xFFFF]], np.uint16)
EIGHT = [[0, 0, 1], [127, 128, 255]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_of_sixteen_bits_keeps_its_upper_byte(kind: str) -> None:
    rgb = np.asarray(open_image(encoded(Image.fromarray(SIXTEEN), kind)))
    assert rgb.shape == (2, 3, 3)
    assert rgb.tolist() == [[[v] * 3 for v in row] for row in EIGHT]


def test_colour_of_sixteen_bits_keeps_its_upper_byte_too() -> None:
    """Written by hand: Pillow does not write such PNGs."""
    rows = b"".join(b"\0" + b"".join(struct.pack(">HHH", v, v, v) for v in row) for row in SIXTEEN.tolist())

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 3, 2, 16, 2, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    assert np.asarray(open_image(png)).tolist() == [[[v] * 3 for v in row] for row in EIGHT]


def test_a_tiff_whose_white_is_zero_is_turned_round() -> None:
    content = encoded(Image.fromarray(SIXTEEN), "TIFF", tiffinfo={262: 0})
    assert np.asarray(open_image(content))[..., 0].tolist() == [[255, 255, 254], [128, 127, 0]]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_samples_without_a_known_white_are_refused(kind: type) -> None:
    with pytest.raises(DataError, match="neither 8 nor 16 bits; save it"):
        open_image(encoded(Image.fromarray(SIXTEEN.astype(kind)), "TIFF"))


def test_sixteen_bits_are_turned_upright_as_well() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = np.asarray(open_image(encoded(Image.fromarray(SIXTEEN), "PNG", exif=exif)))
    assert upright[..., 0].tolist() == [[127, 0], [128, 0], [255, 1]]


def test_transparency_leaves_the_colours_as_they_are() -> None:
    content = encoded(Image.new("RGBA", (2, 2), (10, 20, 30, 0)), "PNG")
    assert open_image(content).getpixel((0, 0)) == (10, 20, 30)
    palette = Image.new("RGB", (2, 2), (204, 0, 0)).convert("P")
    assert open_image(encoded(palette, "PNG")).getpixel((0, 0)) == (204, 0, 0)


def test_an_error_calls_the_picture_what_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"no image")
    with pytest.raises(DataError) as caught:
        open_image(tmp_path / "x.png", name="shard/7")
    assert str(caught.value.where) == "shard/7"


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


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read_from_the_users_own_data_and_by_no_server() -> None:
    data = encoded(picture(40, 30), "AVIF", quality=90, subsampling="4:4:4")
    assert ".avif" in image_suffixes()
    assert ".avif" not in unread_suffixes()
    difference = np.abs(np.asarray(open_image(data, own=True), int) - np.asarray(picture(40, 30)))
    assert difference.mean() < 5
    with pytest.raises(DataError, match="not a JPEG, PNG"):
        open_image(data)


def test_what_no_library_reads_is_named_as_such() -> None:
    assert ".gif" in unread_suffixes()
    assert set(image_suffixes()).isdisjoint(unread_suffixes())
