from __future__ import annotations

import io

import numpy as np
from PIL import Image

from calibrant.export.web.icon import icon


def test_the_icon_has_its_size_and_keeps_to_the_part_that_no_mask_cuts_off() -> None:
    for size in (192, 512):
        image = Image.open(io.BytesIO(icon(size)))
        assert (image.format, image.size) == ("PNG", (size, size))
        pixels = np.asarray(image.convert("RGB")).astype(int)
        y, x = np.ogrid[:size, :size]
        outside = (x - size / 2) ** 2 + (y - size / 2) ** 2 > (0.4 * size) ** 2
        assert np.abs(pixels[outside] - (0x14, 0x60, 0x3F)).max() < 8
        assert (pixels[~outside].min(axis=1) > 240).mean() > 0.3
