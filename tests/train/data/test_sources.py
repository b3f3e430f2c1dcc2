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
