from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data
from calibrant.train.data.split import divide, stratified


def _copy(image_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(image_folder, tmp_path / "copy")


def test_split_folders_are_read_in_sorted_class_order(image_folder: Path) -> None:
    splits = read_data(DataConfig(path=image_folder))
    assert splits.class_names == ("blue", "green", "red")
    assert splits.train.counts(3).tolist() == [14, 10, 7]
    assert splits.test is not None
    assert splits.val.counts(3).tolist() == splits.test.counts(3).tolist() == [5, 5, 5]
    assert splits.train.ids[0] == "train/blue/000.png"


def test_without_val_a_fifth_of_train_is_taken_class_by_class(image_folder: Path, tmp_path: Path) -> None:
    root = _copy(image_folder, tmp_path)
    shutil.rmtree(root / "val")
    splits = read_data(DataConfig(path=root))
    assert splits.val.counts(3).tolist() == [3, 2, 1]  # round(.2 * 14, 10, 7)
    assert not set(splits.val.ids) & set(splits.train.ids)
    assert splits.val.ids == read_data(DataConfig(path=root)).val.ids


def test_a_flat_folder_gives_three_splits_without_overlap(image_folder: Path) -> None:
    splits = read_data(DataConfig(path=image_folder / "train"))
    assert splits.test is not None
    ids = [*splits.train.ids, *splits.val.ids, *splits.test.ids]
    assert len(set(ids)) == len(ids) == 31
    assert splits.test.counts(3).tolist() == splits.val.counts(3).tolist() == [3, 2, 1]
    assert read_data(DataConfig(path=image_folder / "train", test_fraction=0.0)).test is None


def test_missing_folder_empty_class_and_lone_class_are_named(image_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_data(DataConfig(path=tmp_path / "nowhere"))
    root = _copy(image_folder, tmp_path)
    (root / "train" / "violet").mkdir()
    with pytest.raises(DataError, match='class "violet" has no images'):
        read_data(DataConfig(path=root))
    with pytest.raises(DataError, match="no class folders"):
        read_data(DataConfig(path=root / "train" / "red"))
    (root / "one").mkdir()
    shutil.move(root / "train" / "red", root / "one" / "red")
    with pytest.raises(DataError, match=r'one class \("red"\)'):
        read_data(DataConfig(path=root / "one"))


def test_a_class_that_only_validation_has_is_refused(image_folder: Path, tmp_path: Path) -> None:
    root = _copy(image_folder, tmp_path)
    (root / "val" / "red").rename(root / "val" / "rad")
    with pytest.raises(DataError, match='class "rad" is not in the training set; did you mean "red"'):
        read_data(DataConfig(path=root))


def test_a_class_of_one_image_cannot_be_split(image_folder: Path, tmp_path: Path) -> None:
    root = _copy(image_folder, tmp_path) / "train"
    for file in sorted((root / "red").iterdir())[1:]:
        file.unlink()
    with pytest.raises(DataError, match='class "red" has one image'):
        read_data(DataConfig(path=root))


def test_every_class_keeps_a_training_image() -> None:
    labels = np.array([0, 0, 1, 1, 1, 2, 2, 2, 2])
    test, val, rest = stratified(labels, (0.3, 0.3), class_names=("a", "b", "c"))
    assert np.bincount(labels[rest], minlength=3).tolist() == [1, 1, 2]
    assert np.bincount(labels[test], minlength=3).tolist() == [1, 1, 1]
    assert np.bincount(labels[val], minlength=3).tolist() == [0, 1, 1]


def test_groups_stay_together_and_shares_come_near() -> None:
    rng = np.random.default_rng(0)
    groups = tuple(f"plant{i}" for i in rng.integers(0, 60, 600))
    labels = np.array([int(g[5:]) % 3 for g in groups])
    pixels = np.zeros((600, 2, 2, 3), np.uint8)
    images = ImageSet(tuple(map(str, range(600))), labels, pixels=pixels, groups=groups)
    parts = divide(images, (0.2, 0.2), class_names=("a", "b", "c"))
    seen = [set(p.groups or ()) for p in parts]
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    assert sum(map(len, parts)) == 600
    for part, share in zip(parts, (0.2, 0.2, 0.6), strict=True):
        np.testing.assert_allclose(part.counts(3) / images.counts(3), share, atol=0.08)
