"""Ultra-FGVC by its lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.layouts import layout_of
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data


def _picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def _read(path: Path, **options: object) -> object:
    return read_data(DataConfig(path=path, **options))  # type: ignore[arg-type]


def test_ufg_lists_and_stages(tmp_path: Path) -> None:
    rows = {"train": 8, "val": 4, "train_val": 12, "test": 6, "train_R1": 4, "val_R1": 2, "test_R1": 2}
    for name, count in rows.items():
        lines = ["class_id,dir"]
        for i in range(count):
            _picture(tmp_path / "soybean2000" / f"{name}_{i}.png", i)
            lines.append(f"{i % 2},{name}_{i}.png")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    splits = read_data(DataConfig(path=tmp_path))
    assert layout_of(tmp_path) == "ufg"
    assert splits.test is not None
    assert [len(s) for s in (splits.train, splits.val, splits.test)] == [8, 4, 6]
    published = read_data(DataConfig(path=tmp_path, train_list="train_val"))
    assert [len(published.train), len(published.val)] == [10, 2]
    assert len(read_data(DataConfig(path=tmp_path, stage="R1")).train) == 4
    (tmp_path / "train.csv").write_text("label,dir\n0,a.png\n")
    with pytest.raises(DataError, match='no column "class_id"; it has label, dir'):
        _read(tmp_path)


def test_a_stage_that_was_not_named_is_asked_for(tmp_path: Path) -> None:
    _picture(tmp_path / "images" / "a.png", 1)
    for stage in ("R1", "R3"):
        for split in ("train", "test"):
            (tmp_path / f"{split}_{stage}.csv").write_text("class_id,dir\n0,a.png\n1,a.png\n")
    with pytest.raises(DataError, match=r"train\.csv: no such file; choose a stage with data\.stage: R1, R3"):
        _read(tmp_path)


def test_other_data_with_a_train_csv_are_no_ufg(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("epoch,loss\n1,0.5\n")
    for name in ("oak", "ash"):
        _picture(tmp_path / name / "1.png", 1)
    assert layout_of(tmp_path) == "folder"


def test_a_broken_line_of_the_authors_lists_is_told(tmp_path: Path) -> None:
    _picture(tmp_path / "images" / "a b.png", 1)
    (tmp_path / "anno").mkdir()
    (tmp_path / "anno" / "train.txt").write_text("a b.png 3\nalone\n")
    (tmp_path / "anno" / "test.txt").write_text("a b.png 3\n")
    with pytest.raises(DataError, match='line "alone" is not "FILE CLASS"'):
        _read(tmp_path)
