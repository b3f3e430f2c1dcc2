"""Pictures of every kind that a person may have, and the bytes of PNGs that Pillow reads and cannot write."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms, PngImagePlugin

# Adam7: begin and step of each of the seven small pictures, across and down.
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def scene(width: int, height: int, seed: int) -> Image.Image:
    """Coarse patches with noise on them: edges for the filters, colours for the networks."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 5, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    noise = rng.integers(-30, 31, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(coarse, int) + noise, 0, 255).astype(np.uint8))


def png(kind: int, depth: int, width: int, height: int, *, interlaced: bool = False, seed: int = 0) -> bytes:
    """A PNG of random samples by the specification, its rows filtered in every way in turn."""
    rng = np.random.default_rng(seed)
    samples = rng.integers(0, 2**depth, (height, width, CHANNELS[kind]))
    data = b"".join(
        _filtered(samples[y0::dy, x0::dx], depth) for x0, y0, dx, dy in (ADAM7 if interlaced else [(0, 0, 1, 1)])
    )
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    palette = rng.integers(0, 256, 3 * min(2**depth, 200), dtype=np.uint8).tobytes()  # shorter than 8 bits reach
    chunks = [(b"IHDR", head), *([(b"PLTE", palette)] if kind == 3 else [])]
    half = len(packed := zlib.compress(data)) // 2
    chunks += [(b"IDAT", packed[:half]), (b"IDAT", packed[half:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _filtered(samples: NDArray[np.int64], depth: int) -> bytes:
    height, width, channels = samples.shape
    if not height or not width:
        return b""
    if depth == 16:
        rows = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    elif depth == 8:
        rows = samples.astype(np.uint8).reshape(height, -1)
    else:
        bits = (samples.reshape(height, -1, 1) >> np.arange(depth - 1, -1, -1)) & 1
        rows = np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)
    bpp, out, above = max(1, depth * channels // 8), [], np.zeros(rows.shape[1], int)
    for y, row in enumerate(rows.astype(int)):
        left = np.concatenate([np.zeros(bpp, int), row])[: len(row)]
        corner = np.concatenate([np.zeros(bpp, int), above])[: len(row)]
        guess = left + above - corner
        far = np.abs(np.stack([left, above, corner]) - guess).argmin(axis=0)  # the first among equals, as it is written
        paeth = np.choose(far, [left, above, corner])
        predicted = [0 * row, left, above, (left + above) // 2, paeth][y % 5]
        out.append(bytes([y % 5]) + ((row - predicted) % 256).astype(np.uint8).tobytes())
        above = row
    return b"".join(out)


def _saved(image: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def _turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif.tobytes()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Fifty and more files. None has transparent parts in another format than PNG, which alone keeps their colours."""
    found: dict[str, bytes] = {}
    sizes = [(301, 299), (97, 260), (640, 480), (33, 17), (480, 641), (123, 45), (1, 1), (48, 48), (40, 900), (900, 40)]
    sizes += [(2, 3), (255, 257)]
    for n, (width, height) in enumerate(sizes):
        image = scene(width, height, n)
        found[f"{n}-plain.png"] = _saved(image, "PNG")
        found[f"{n}-{(444, 422, 420)[n % 3]}.jpg"] = _saved(image, "JPEG", quality=70 + 3 * n, subsampling=n % 3)
    image = scene(211, 160, 50)
    for orientation in range(1, 9):
        found[f"exif-{orientation}.jpg"] = _saved(image, "JPEG", quality=88, exif=_turned(orientation))
    found["exif-6.png"] = _saved(image, "PNG", exif=_turned(6))
    for orientation in (1, 3, 8):
        found[f"exif-{orientation}.webp"] = _saved(image, "WEBP", exif=_turned(orientation))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    srgb = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    at = srgb.find(b"XYZ ", 128)  # the colours of the profile are moved, so that obeying it would show
    srgb[at + 40 : at + 44] = struct.pack(">i", 20000)
    found["icc.jpg"] = _saved(image, "JPEG", icc_profile=bytes(srgb))
    found["icc.png"] = _saved(image, "PNG", icc_profile=bytes(srgb))
    found["lab-profile.png"] = _saved(image, "PNG", icc_profile=profile)
    gamma = PngImagePlugin.PngInfo()
    gamma.add(b"gAMA", struct.pack(">I", 100000))
    found["gamma.png"] = _saved(image, "PNG", pnginfo=gamma)
    found["progressive.jpg"] = _saved(image, "JPEG", progressive=True, quality=60)
    found["grey.jpg"] = _saved(image.convert("L"), "JPEG")
    found["cmyk.jpg"] = _saved(image.convert("CMYK"), "JPEG")
    found["grey.png"] = _saved(image.convert("L"), "PNG")
    found["bits.png"] = _saved(image.convert("1"), "PNG")
    found["palette.png"] = _saved(image.quantize(70), "PNG")
    found["palette-transparent.png"] = _saved(image.quantize(70), "PNG", transparency=3)
    veil = Image.fromarray(np.random.default_rng(1).integers(0, 256, (160, 211), dtype=np.uint8))
    found["rgba.png"] = _saved(Image.merge("RGBA", (*image.split(), veil)), "PNG")
    found["grey-alpha.png"] = _saved(Image.merge("LA", (image.convert("L"), veil)), "PNG")
    found["lossy.webp"] = _saved(image, "WEBP", quality=80)
    found["lossless.webp"] = _saved(image, "WEBP", lossless=True)
    found["plain.bmp"] = _saved(image, "BMP")
    found["sixteen-grey.png"] = png(0, 16, 90, 70)
    found["sixteen.png"] = png(2, 16, 90, 70, interlaced=True)
    found["sixteen-alpha.png"] = png(6, 16, 90, 70)
    folder = tmp_path_factory.mktemp("pictures")
    for name, data in found.items():
        (folder / name).write_bytes(data)
    assert len(found) >= 50
    return sorted(folder.iterdir())
