"""A list of images is read by its columns, and what is wrong with it is said."""

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


def test_a_csv_with_splits(tmp_path: Path) -> None:
    lines = ["path,label,split"]
    for i in range(12):
        _picture(tmp_path / "pics" / f"{i}.png", i)
        lines.append(f"pics/{i}.png,{'oak' if i % 2 else 'ash'},{('train', 'val', 'test')[i // 2 % 3]}")
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    splits = read_data(DataConfig(path=tmp_path / "list.csv"))
    assert splits.class_names == ("ash", "oak")
    assert splits.train.ids == ("pics/0.png", "pics/1.png", "pics/6.png", "pics/7.png")
    assert splits.train.labels.tolist() == [0, 1, 0, 1]
    assert splits.test is not None
    assert np.asarray(splits.test.image(0))[0, 0, 0] == 4


def test_a_csv_with_groups_keeps_each_group_in_one_split(tmp_path: Path) -> None:
    lines = ["file,class_id,plant"]
    for i in range(80):
        _picture(tmp_path / f"{i}.png", i)
        lines.append(f"{i}.png,{i % 2},p{i // 4}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    splits = read_data(DataConfig(path=tmp_path / "list.csv", groups="plant"))
    assert splits.test is not None
    groups = [set(s.groups or ()) for s in (splits.train, splits.val, splits.test)]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert sum(map(len, groups)) == 20
    with pytest.raises(DataError, match='no column "plants"; did you mean "plant"'):
        _read(tmp_path / "list.csv", groups="plants")


def test_mistakes_in_a_csv_are_named(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    _picture(tmp_path / "a.png", 1)
    file.write_text("picture,label\na.png,x\n")
    with pytest.raises(DataError, match="no column path or file .*it has picture, label"):
        _read(file)
    file.write_text("path,label\na.png,x\nb.png,y\n")
    with pytest.raises(DataError, match=r"line 3 names .*b\.png, which does not exist"):
        _read(file)
    file.write_text("path,label\na.png,x\na.png,\n")
    with pytest.raises(DataError, match="a.png has no label"):
        _read(file)
    file.write_text("path,label,split\na.png,x,train\na.png,y,holdout\n")
    with pytest.raises(DataError, match='split "holdout" is not train, val or test'):
        _read(file)
