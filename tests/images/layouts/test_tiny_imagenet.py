"""Tiny-ImageNet by its annotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data


def _picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def test_tiny_imagenet(tmp_path: Path) -> None:
    (tmp_path / "wnids.txt").write_text("n02\nn01\n")
    for name in ("n01", "n02"):
        for i in range(5):
            _picture(tmp_path / "train" / name / "images" / f"{name}_{i}.JPEG", i)
    _picture(tmp_path / "val" / "images" / "val_0.JPEG", 9)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\n")
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == ("n01", "n02")
    assert splits.test is not None
    assert (len(splits.train), len(splits.val), splits.test.labels.tolist()) == (8, 2, [1])
