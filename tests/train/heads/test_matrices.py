"""Rows of a cache side by side or averaged over views."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.settings.heads import HeadDataConfig
from calibrant.train.heads.features.cache import FeatureCache
from calibrant.train.heads.matrices import Matrices


def test_each_view_is_read_once(cache: FeatureCache, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, str]] = []
    monkeypatch.setattr(
        FeatureCache, "read", lambda self, *key, own=FeatureCache.read: (read.append(key), own(self, *key))[1]
    )
    matrices = Matrices(cache)
    assert matrices.part("test", "flip") is matrices.part("test", "flip")
    assert read == [("test", "flip")]


def test_the_mean_of_two_views_of_the_rows_that_are_asked_for(cache: FeatureCache) -> None:
    first, second = (cache.read("test", view).features for view in ("eval", "flip"))
    rows = np.array([7, 2])
    found = Matrices(cache).averaged("test", ["eval", "flip"], rows)
    assert found.ids == ("test/7", "test/2")
    np.testing.assert_allclose(found.features, (first[rows] + second[rows]) / 2, rtol=1e-6)
    assert not np.array_equal(first, second)


def test_views_are_asked_one_by_one_where_their_logits_are_averaged(cache: FeatureCache) -> None:
    views = ("eval", "flip")
    (mean,) = Matrices(cache).shown("test", HeadDataConfig(test_views=views))
    apart = Matrices(cache).shown("test", HeadDataConfig(test_views=views, average="logits"))
    assert len(apart) == 2
    np.testing.assert_allclose(mean.features, (apart[0].features + apart[1].features) / 2, rtol=1e-6)


def test_training_rows_stand_one_view_after_the_other(cache: FeatureCache) -> None:
    rows = np.array([5, 0, 30])
    x, y, views = Matrices(cache).stacked("train", ["eval", "flip"], rows)
    parts = [cache.read("train", view) for view in ("eval", "flip")]
    np.testing.assert_array_equal(x.numpy(), np.concatenate([p.features[rows] for p in parts]))
    assert y.tolist() == [*parts[0].labels[rows], *parts[0].labels[rows]]
    assert views.image.tolist() == [5, 0, 30, 5, 0, 30]
