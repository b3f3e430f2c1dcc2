"""A picture's look tells blank sheets and noise from photographs, whatever a network says of them."""

from __future__ import annotations

import numpy as np
from PIL import Image

from calibrant.images.look import Looks, is_flat, look


def photograph(seed: int) -> Image.Image:
    """Soft light and a few large patches of colour, as photographs have them."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 216, (6, 8, 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((160, 120), Image.Resampling.BICUBIC)
    grain = rng.normal(0, 4, (120, 160, 1))
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


KNOWN = Looks([look(photograph(seed)) for seed in range(150)])


def test_one_in_a_hundred_photographs_is_as_unusual_as_the_hundredth_known_one() -> None:
    found = np.array([KNOWN.unusual(look(photograph(seed))) for seed in range(1000, 1400)])
    assert (found > 0.9).mean() < 0.2
    assert (found > 0.99).mean() < 0.04
    assert 0.35 < np.median(found) < 0.65


def test_blank_sheets_and_noise_are_more_unusual_than_all_photographs() -> None:
    rng = np.random.default_rng(0)
    for side in (64, 224):
        noise = rng.integers(0, 256, (side, side, 3)).astype(np.uint8)
        assert KNOWN.unusual(look(Image.fromarray(noise))) == 1
        for shade in (0, 128, 255):
            blank = look(Image.new("RGB", (side, side), (shade, shade, shade)))
            assert is_flat(blank)
            assert KNOWN.unusual(blank) == 1
    assert not is_flat(look(photograph(0)))
