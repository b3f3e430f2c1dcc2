"""A data set of a plugin is a layout like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant import plugins
from calibrant.errors import ConfigError, DataError
from calibrant.images.layouts import list_images
from calibrant.images.layouts.plugin import as_picture


def test_splits_classes_and_pictures_are_those_of_the_data_set(example_plugin: Path) -> None:
    listing = list_images("plugin:colours")
    assert listing.class_names == ("blue", "red")
    assert {split: len(images) for split, images in listing.sets.items()} == {"train": 96, "val": 40, "test": 40}
    train = listing.sets["train"]
    assert list(train.labels[:4]) == [0, 1, 0, 1]
    expected = plugins.registered("datasets")["colours"]()["train"][5][0]
    np.testing.assert_array_equal(np.asarray(train.image(5)), expected)
    assert train.place(5) is None
    assert [np.asarray(make()).shape for _, make in train.in_order(0, 2)] == [(24, 24, 3)] * 2


def test_a_data_set_that_nobody_registered_is_named(example_plugin: Path) -> None:
    with pytest.raises(ConfigError, match='no data set "colors"; did you mean "colours"'):
        list_images("plugin:colors")


def test_labels_may_be_words_and_need_no_list(example_plugin: Path) -> None:
    @plugins.register_dataset("words")
    def words() -> list[tuple[np.ndarray, str]]:
        return [(np.zeros((4, 4, 3), np.uint8), word) for word in ("oak", "ash", "oak")]

    listing = list_images("plugin:words")
    assert listing.class_names == ("ash", "oak")
    assert list(listing.whole().labels) == [1, 0, 1]


def test_data_sets_of_hugging_face_say_their_classes() -> None:
    class Label:
        names = ("ant", "bee")

    class Hub:
        column_names = ("image", "label")
        features = {"label": Label()}  # noqa: RUF012
        rows = (Image.new("L", (4, 5), 9), Image.new("RGB", (4, 5)))

        def __len__(self) -> int:
            return 2

        def __getitem__(self, key: int | str) -> object:
            return [1, 0] if key == "label" else {"image": self.rows[key], "label": 1 - key}  # type: ignore[index, operator]

    plugins.register_dataset("hub")(lambda: Hub())
    images = list_images("plugin:hub").whole()
    assert list(images.labels) == [1, 0]
    assert images.image(0).mode == "RGB"
    assert np.asarray(images.image(0))[0, 0, 0] == 9


def test_pictures_of_any_type_are_pictures() -> None:
    grey = np.arange(20, dtype=np.uint8).reshape(4, 5)
    for given in (grey, grey[None], grey[..., None], (grey / 255)[None]):
        np.testing.assert_array_equal(np.asarray(as_picture(given))[..., 0], grey)
    with pytest.raises(DataError, match="normalised"):
        as_picture(np.full((3, 4, 5), -1.0))
