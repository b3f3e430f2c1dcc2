"""CUB-200-2011 by its lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.layouts import images_to_predict
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data


def _picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def test_cub(tmp_path: Path) -> None:
    names = ["001.Albatross", "002.Crow"]
    (tmp_path / "classes.txt").write_text("1 001.Albatross\n2 002.Crow\n")
    listing = {"images.txt": "", "image_class_labels.txt": "", "train_test_split.txt": ""}
    for i in range(1, 13):
        file = f"{names[i % 2]}/{i}.jpg"
        _picture(tmp_path / "images" / file, i)
        listing["images.txt"] += f"{i} {file}\n"
        listing["image_class_labels.txt"] += f"{i} {i % 2 + 1}\n"
        listing["train_test_split.txt"] += f"{i} {int(i <= 8)}\n"
    for name, text in listing.items():
        (tmp_path / name).write_text(text)
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == tuple(names)
    assert splits.test is not None
    assert [len(s) for s in (splits.train, splits.val, splits.test)] == [6, 2, 4]
    assert all(
        splits.class_names[y] == i.split("/")[0] for y, i in zip(splits.test.labels, splits.test.ids, strict=True)
    )


def test_a_split_without_images_is_none(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("1 a\n2 b\n")
    for i in (1, 2):
        _picture(tmp_path / "images" / f"{i}.jpg", i)
    (tmp_path / "images.txt").write_text("1 1.jpg\n2 2.jpg\n")
    (tmp_path / "image_class_labels.txt").write_text("1 1\n2 2\n")
    (tmp_path / "train_test_split.txt").write_text("1 1\n2 1\n")
    with pytest.raises(DataError, match='has no split "test"'):
        images_to_predict(tmp_path, ("a", "b"), split="test")
    assert len(images_to_predict(tmp_path, ("a", "b"), split="train")) == 2
