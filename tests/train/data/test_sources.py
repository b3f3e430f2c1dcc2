"""What training takes of the images that it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import ConfigError
from calibrant.images.image_set import ImageSet
from calibrant.train.config import DataConfig
from calibrant.train.data.loader import BatchPlan
from calibrant.train.data.sources import long_tailed, read_data, sampling_weights


def _picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def _read(path: Path, **options: object) -> object:
    return read_data(DataConfig(path=path, **options))  # type: ignore[arg-type]


def test_a_setting_that_the_layout_would_not_read_is_refused(image_folder: Path) -> None:
    with pytest.raises(
        ConfigError, match="data.groups.*belongs to the layout csv or parquet, but these data are folder"
    ):
        _read(image_folder, groups="plant")


def test_the_long_tail_has_the_imbalance_that_was_asked_for() -> None:
    labels = np.repeat(np.arange(5), 100)
    images = ImageSet(tuple(map(str, range(500))), labels, pixels=np.zeros((500, 2, 2, 3), np.uint8))
    thin = long_tailed(images, 5, 10.0, seed=42)
    assert thin.counts(5).tolist() == [100, 56, 31, 17, 10]  # 100 * 10^(-k/4), rounded down
    assert thin.ids == long_tailed(images, 5, 10.0, seed=42).ids
    # a set with a tail of its own: no class is asked for more than it has
    scarce = long_tailed(images.rows(np.flatnonzero((labels != 4) | (np.arange(500) >= 495))), 5, 10.0, seed=42)
    assert scarce.counts(5).tolist() == [50, 28, 15, 8, 5]


@pytest.mark.parametrize(("power", "expected"), [(1.0, [1 / 3, 1 / 3, 1 / 3]), (0.5, [0.625, 0.25, 0.125])])
def test_the_sampler_draws_classes_as_often_as_it_says(power: float, expected: list[float]) -> None:
    labels = np.repeat(np.arange(3), [100, 16, 4])
    images = ImageSet(tuple(map(str, range(120))), labels, pixels=np.zeros((120, 1, 1, 3), np.uint8))
    plan = BatchPlan(120, 10, seed=0, weights=sampling_weights(images, 3, power))
    drawn = np.concatenate([plan.order(epoch) for epoch in range(60)])
    np.testing.assert_allclose(np.bincount(labels[drawn]) / len(drawn), expected, atol=0.02)


def test_a_share_is_the_same_of_every_class_and_the_same_at_every_call(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], [60, 20])
    pixels = np.arange(80, dtype=np.uint8)[:, None, None, None].repeat(3, 3)
    np.savez(tmp_path / "set.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    config = DataConfig(path=tmp_path / "set.npz", val_fraction=0.5, share=0.5, test_share=0.1)
    splits, again = read_data(config), read_data(config)
    assert splits.test is not None
    assert [s.counts(2).tolist() for s in (splits.train, splits.val, splits.test)] == [[15, 5], [15, 5], [6, 2]]
    assert splits.train.ids == again.train.ids
    assert set(splits.train.ids) <= set(read_data(DataConfig(path=tmp_path / "set.npz", val_fraction=0.5)).train.ids)
