"""Views of two images: what is pasted, how labels are shared, and that a view is a function of its image alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.preprocessing import Preprocessing
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.features.extract import FeatureConfig, extract
from calibrant.train.heads.features.mixed_views import MixedViews, is_mixed
from calibrant.train.heads.features.views import make_view

SIZE = 32
PREPROCESSING = Preprocessing((SIZE, SIZE), SIZE, "center", "bilinear", (0.5,) * 3, (0.25,) * 3)


def flat_images(labels: list[int]) -> ImageSet:
    """Image i is one grey of its own, 10 (i + 1), so that a pixel says whose it is."""
    pixels = np.stack([np.full((40, 50, 3), 10 * (i + 1), np.uint8) for i in range(len(labels))])
    return ImageSet(tuple(f"{i}.png" for i in range(len(labels))), np.asarray(labels, np.int64), pixels=pixels)


@pytest.mark.parametrize("kind", ["cutmix", "superpixel"])
def test_the_share_is_that_of_the_pixels_that_are_its_own(kind: str) -> None:
    mixer = MixedViews(flat_images([0, 0, 1, 1, 2]), PREPROCESSING, 0)
    partners = set()
    for row in range(5):
        for n in range(1, 25):
            made = mixer.make(f"{kind}{n}", row)
            own = made.pixels[:, :, 0] == 10 * (row + 1)
            assert made.partner != row
            assert (made.pixels[:, :, 0][~own] == 10 * (made.partner + 1)).all()
            assert made.share == pytest.approx(own.mean(), abs=1e-6)
            partners.add((row, made.partner))
    assert len(partners) == 20  # every other image, of all four


def test_rare_classes_lend_patches_to_frequent_ones() -> None:
    labels = [0] * 8 + [1] * 2
    mixer = MixedViews(flat_images(labels), PREPROCESSING, 0)
    for row in range(10):
        made = mixer.make("transplant1", row)
        own = made.pixels[:, :, 0] == 10 * (row + 1)
        if labels[row] == 1:
            assert (made.partner, made.share) == (row, 1.0)
            assert own.all()
            continue
        assert labels[made.partner] == 1
        assert made.share == pytest.approx(own.mean(), abs=1e-6)
        assert 0.05 < 1 - made.share < 0.35
    with pytest.raises(ConfigError, match="none is rare"):
        MixedViews(flat_images([0, 0, 1, 1]), PREPROCESSING, 0).make("transplant1", 0)


def test_a_mixture_does_not_depend_on_what_was_made_before() -> None:
    first, second = (MixedViews(flat_images([0, 1, 2]), PREPROCESSING, 7) for _ in range(2))
    second.make("cutmix2", 1)
    one, other = first.make("cutmix1", 0), second.make("cutmix1", 0)
    assert np.array_equal(one.pixels, other.pixels)
    assert (one.partner, one.share) == (other.partner, other.share)
    elsewhere = MixedViews(flat_images([0, 1, 2]), PREPROCESSING, 8).make("cutmix1", 0)
    assert elsewhere.share != one.share
    with pytest.raises(DataError, match="no other"):
        MixedViews(flat_images([0]), PREPROCESSING, 0).make("cutmix1", 0)


def test_policies_are_the_same_in_any_thread(images: Path, weights: Path, tmp_path: Path) -> None:
    views = ("rand1", "trivial1", "augmix1", "colour1", "erase1")
    caches = [
        extract(
            FeatureConfig(
                "test_vit", images, tmp_path / str(workers), weights=weights, image_size=SIZE, views=chosen,
                splits=("train",), workers=workers, keep_backbone=False,
            )
        ).cache
        for workers, chosen in ((0, views), (3, ("eval", *views[::-1])))
    ]  # fmt: skip
    rows = {view: [c.read("train", view).features for c in caches] for view in views}
    for view in views:
        np.testing.assert_allclose(*rows[view], atol=1e-4, err_msg=view)
    crop = make_view(Image.open(images / "train/class0/0.png"), "crop1", PREPROCESSING, seed=0, id="a")
    erased = make_view(Image.open(images / "train/class0/0.png"), "erase1", PREPROCESSING, seed=0, id="a")
    assert crop.shape == erased.shape
    assert np.abs(rows["rand1"][0] - rows["trivial1"][0]).max() > 1e-3


def test_a_cache_keeps_partners_and_shares(images: Path, weights: Path, tmp_path: Path) -> None:
    config = FeatureConfig(
        "test_vit", images, tmp_path / "f", weights=weights, image_size=SIZE, views=("eval", "cutmix1"), block=4
    )
    extract(config)
    cache = FeatureCache.open(tmp_path / "f")
    rows, plain = cache.read("train", "cutmix1"), cache.read("train")
    assert plain.partners is None
    assert rows.partners is not None
    assert rows.shares is not None
    assert set(rows.partners) <= set(rows.ids)
    assert all(a != b for a, b in zip(rows.ids, rows.partners, strict=True))
    assert ((rows.shares > 0) & (rows.shares < 1)).any()
    assert [is_mixed(v) for v in ("cutmix1", "superpixel12", "transplant3", "crop1", "cutmix")] == [True] * 3 + [
        False,
        False,
    ]
