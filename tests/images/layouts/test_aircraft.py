"""FGVC-Aircraft by its lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data


def _picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def _read(path: Path, **options: object) -> object:
    return read_data(DataConfig(path=path, **options))  # type: ignore[arg-type]


def test_aircraft(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _picture(data / "images" / "0034309.jpg", 3)
    (data / "variants.txt").write_text("707-320\nDHC-8 100\n")
    for split in ("train", "val", "test"):
        (data / f"images_variant_{split}.txt").write_text("0034309 DHC-8 100\n")
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == ("707-320", "DHC-8 100")
    assert splits.train.labels.tolist() == [1]
    (data / "images_variant_val.txt").write_text("0034309 Boeing\n")
    with pytest.raises(DataError, match='variant "Boeing" is not in variants.txt'):
        _read(tmp_path)
