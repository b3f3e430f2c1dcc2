"""One look: size of the original, the same hash for the same bytes, trouble in place of an exception."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from calibrant.images.audit.look import look_at
from calibrant.images.image_set import ImageSet


def test_sizes_are_those_of_the_file_and_trouble_is_told(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    big = Image.fromarray(noise).resize((1200, 800))
    big.save(tmp_path / "a.jpg")  # decoded smaller than it is
    (tmp_path / "b.jpg").write_bytes((tmp_path / "a.jpg").read_bytes())
    (tmp_path / "c.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:400])
    names = ("a.jpg", "b.jpg", "c.jpg", "gone.jpg")
    images = ImageSet(names, np.zeros(4, np.int64), files=tuple(tmp_path / n for n in names))
    a, b, c, gone = look_at(images, workers=2)
    assert (a.width, a.height, a.trouble) == (1200, 800, None)
    assert (a.sha256, a.p_hash, a.d_hash) == (b.sha256, b.p_hash, b.d_hash)
    assert c.trouble is not None
    assert gone.trouble is not None
    assert [look.id for look in (a, b, c, gone)] == list(names)


def test_pixels_in_memory_are_looked_at_too() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, 32, 48, 3)).astype(np.uint8)
    found = look_at(ImageSet(("x", "y"), np.zeros(2, np.int64), pixels=pixels))
    assert [(look.width, look.height) for look in found] == [(48, 32)] * 2
    assert found[0].sha256 != found[1].sha256
