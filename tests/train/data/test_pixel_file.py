from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.image_set import ImageSet
from calibrant.train import TrainConfig, fit
from calibrant.train.config import DataConfig
from calibrant.train.data.pixel_file import pixels_on_disk
from calibrant.train.data.pixels import ArrayStore, Pixels, RaggedStore, whole
from calibrant.train.data.sources import read_data
from calibrant.train.run.folder import MODEL_FILE

RECIPE = {"whole": True}


class Counted:
    """whole(), and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image: Image.Image) -> Pixels:
        self.calls += 1
        return whole(image)


def test_an_image_is_decoded_once_for_all_runs_and_its_pixels_are_the_same(image_folder: Path, tmp_path: Path) -> None:
    images, count = read_data(DataConfig(path=image_folder)).train, Counted()
    for _ in range(2):
        store, rows, bad = pixels_on_disk(images, count, tmp_path, recipe=RECIPE, what="x", skip_bad=False)
        assert isinstance(store, ArrayStore)
        assert isinstance(store.array.base, np.memmap | np.ndarray)
        for i in (0, 17, 30):
            np.testing.assert_array_equal(store[i], np.asarray(images.image(i)))
    assert (count.calls, len(rows), bad) == (31, 31, [])
    assert {p.suffix for p in tmp_path.iterdir()} == {".pixels", ".json"}


def test_images_of_several_sizes_stand_one_after_the_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (5 + i, 9 - i, 3)).astype(np.uint8) for i in range(5)]
    for i, array in enumerate(arrays):
        Image.fromarray(array).save(tmp_path / f"{i}.png")
    images = ImageSet(tuple("01234"), np.zeros(5, np.int64), files=tuple(tmp_path / f"{i}.png" for i in range(5)))
    store, _, _ = pixels_on_disk(images, whole, tmp_path / "cache", recipe=RECIPE, what="x", skip_bad=False)
    assert isinstance(store, RaggedStore)
    for i in (4, 0, 2):
        np.testing.assert_array_equal(store[i], arrays[i])


@pytest.mark.parametrize("change", ["file", "recipe", "order", "torn pixels", "torn index", "no index"])
def test_what_changed_is_decoded_again(image_folder: Path, tmp_path: Path, change: str) -> None:
    root, cache = shutil.copytree(image_folder, tmp_path / "images"), tmp_path / "cache"
    images, count = read_data(DataConfig(path=root)).train, Counted()
    pixels_on_disk(images, count, cache, recipe=RECIPE, what="x", skip_bad=False)
    data, index = next(cache.glob("*.pixels")), next(cache.glob("*.json"))
    recipe = RECIPE
    if change == "file":
        file = root / "train" / "red" / "002.png"
        Image.fromarray(np.full((24, 24, 3), 7, np.uint8)).save(file)
        os.utime(file, ns=(1, 1))
    elif change == "recipe":
        recipe = {"whole": False}
    elif change == "order":
        images = images.rows(np.arange(31)[::-1])
    elif change == "torn pixels":
        data.write_bytes(data.read_bytes()[:-1])
    elif change == "torn index":
        index.write_text(index.read_text()[:-9])
    else:
        index.unlink()  # a kill between the two files
    store, _, _ = pixels_on_disk(images, count, cache, recipe=recipe, what="x", skip_bad=False)
    assert count.calls == 62
    for i in (0, 26, 30):
        np.testing.assert_array_equal(store[i], np.asarray(images.image(i)))


def test_unreadable_images_are_left_out_or_refused_each_time(image_folder: Path, tmp_path: Path) -> None:
    root = shutil.copytree(image_folder, tmp_path / "images")
    (root / "train" / "red" / "002.png").write_bytes(b"no image")
    images = read_data(DataConfig(path=root)).train
    with pytest.raises(DataError, match="train/red/002|002.png"):
        pixels_on_disk(images, whole, tmp_path / "cache", recipe=RECIPE, what="x", skip_bad=False)
    assert not list((tmp_path / "cache").iterdir())
    for _ in range(2):
        store, rows, bad = pixels_on_disk(images, whole, tmp_path / "cache", recipe=RECIPE, what="x", skip_bad=True)
        assert (len(store), len(rows), [b.id for b in bad]) == (30, 30, ["train/red/002.png"])
    with pytest.raises(DataError, match="not a JPEG"):  # known from the index now
        pixels_on_disk(images, whole, tmp_path / "cache", recipe=RECIPE, what="x", skip_bad=False)


def test_training_from_the_pixel_file_is_training_from_memory(
    small: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    plain = load_file(fit(small("schedule.epochs=1")) / MODEL_FILE)
    for workers in (0, 2):
        settings = ("schedule.epochs=1", f"data.cache_dir={tmp_path / 'cache'}", f"data.workers={workers}")
        kept = load_file(fit(small(*settings), overwrite=True) / MODEL_FILE)
        assert all((plain[k] == kept[k]).all() for k in plain)
    assert len(list((tmp_path / "cache").glob("*.pixels"))) == 3  # training, validation and test, each once
