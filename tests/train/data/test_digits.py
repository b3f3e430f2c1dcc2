"""Digits as colour images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("sklearn")

from calibrant.train.data.digits import DigitSpec, write_digits


def test_splits_are_disjoint_thinned_and_nearly_balanced_in_the_test_set(tmp_path: Path) -> None:
    write_digits(tmp_path, DigitSpec(imbalance=10.0, size=16))
    splits = ("train", "val", "test")
    names = {s: {p.relative_to(tmp_path / s).as_posix() for p in (tmp_path / s).rglob("*.png")} for s in splits}
    assert not names["train"] & names["test"]
    assert not names["train"] & names["val"]
    assert not names["val"] & names["test"]

    def counts(split: str) -> list[int]:
        return [len(list((tmp_path / split / str(d)).iterdir())) for d in range(10)]

    assert counts("train")[0] / counts("train")[9] == pytest.approx(10, rel=0.15)
    assert max(counts("test")) - min(counts("test")) <= 3
    with Image.open(tmp_path / "test" / min(names["test"])) as image:
        picture = np.asarray(image)
    assert picture.shape == (16, 16, 3)
    assert picture.std(axis=(0, 1)).min() > 5  # ink and paper differ in every channel's levels
