"""The pictures that an adoption is tried on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from calibrant.export.adoption.pictures import Pictures, random_pictures
from calibrant.images.preprocessing import Preprocessing


def test_random_pictures_differ_by_more_than_noise_and_are_always_the_same() -> None:
    x = random_pictures(16, (12, 20))
    assert x.shape == (16, 12, 20, 3)
    assert x.mean((1, 2)).std(0).min() > 20
    np.testing.assert_array_equal(x, random_pictures(16, (12, 20)))


def test_pictures_are_spread_over_all_with_labels_in_the_models_order(tmp_path: Path) -> None:
    for k, name in enumerate(("b", "a")):
        for i in range(6):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (9, 9), (40 * k, 10 * i, 0)).save(tmp_path / name / f"{i}.png")
    found = Pictures.of(tmp_path, ["b", "a"], limit=4)
    assert found.labelled
    assert len(found.labels) == 4
    assert set(found.labels) == {0, 1}
    assert found.pixels(Preprocessing((9, 9), 9)).shape == (4, 9, 9, 3)


def test_pictures_without_labels(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "one.png")
    assert not Pictures.of(tmp_path, ["b", "a"]).labelled
