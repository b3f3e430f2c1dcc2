"""Own features: divided without a group on two sides, and a head trained on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from calibrant.artifacts.predictions import read_predictions
from calibrant.errors import DataError
from calibrant.train.heads.cli import head
from calibrant.train.heads.features.cache import FeatureCache


def table(path: Path, **more: object) -> Path:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 50)
    x = rng.normal(size=(200, 6)) + 2 * np.eye(4, 6)[y]
    np.savez(path, features=x, label=np.array(["ash", "elm", "fir", "oak"])[y], **more)
    return path


def test_no_group_stands_on_two_sides(tmp_path: Path) -> None:
    groups = np.repeat(np.arange(40), 5)
    cache = FeatureCache.open(table(tmp_path / "a.npz", group=groups))
    sides = {split: {int(i.rsplit("/")[-1]) // 5 for i in cache.read(split).ids} for split in cache.splits()}
    assert set(sides) == {"train", "val", "test"}
    assert not sides["train"] & sides["test"]
    assert not sides["train"] & sides["val"]
    assert not sides["val"] & sides["test"]
    assert cache.manifest.splits["test"] == 40


def test_a_divided_table_with_groups_validates_on_groups_and_tells_of_shared_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = np.repeat(np.arange(40), 5)
    clean = FeatureCache.open(table(tmp_path / "a.npz", group=groups, split=np.where(groups % 5 == 0, "test", "train")))
    sides = {split: {int(i.rsplit("/")[-1]) // 5 for i in clean.read(split).ids} for split in clean.splits()}
    assert sorted(sides) == ["test", "train", "val"]
    assert not sides["train"] & sides["val"]
    assert not caplog.records
    FeatureCache.open(table(tmp_path / "b.npz", group=groups, split=["test", "train"] * 100))
    assert "40 of the 40 groups of test are in train too" in caplog.text
    caplog.clear()
    lone = FeatureCache.open(table(tmp_path / "c.npz", group=np.repeat(np.arange(4), 50), split=["train"] * 200))
    assert lone.splits() == ("train",)
    assert "drawn whatever theirs" in caplog.text


def test_groups_that_cannot_be_divided_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="its 1 groups cannot be divided.*finer groups"):
        FeatureCache.open(table(tmp_path / "a.npz", group=["field"] * 200))


def test_one_class_is_no_classifier(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.ones((30, 2)), label=["ash"] * 30)
    with pytest.raises(DataError, match='every label is "ash"'):
        FeatureCache.open(tmp_path / "a.npz")


def test_a_fifth_of_each_class_where_there_are_no_groups(tmp_path: Path) -> None:
    cache = FeatureCache.open(table(tmp_path / "a.npz"))
    assert np.bincount(cache.read("test").labels).tolist() == [10] * 4
    again = FeatureCache.open(tmp_path / "a.npz")
    assert again.read("test").ids == cache.read("test").ids


def test_its_own_splits_are_kept(tmp_path: Path) -> None:
    split = np.where(np.arange(200) % 5 == 0, "test", "train")
    cache = FeatureCache.open(table(tmp_path / "a.npz", split=split))
    assert cache.manifest.splits == {"test": 40, "train": 160}
    with pytest.raises(DataError, match='no split "val"'):
        cache.read("val")


def test_a_head_on_own_features_has_a_test_figure(tmp_path: Path) -> None:
    table(tmp_path / "a.npz", group=np.repeat(np.arange(40), 5))
    done = CliRunner().invoke(
        head,
        [str(tmp_path / "a.npz"), "--kind", "logistic", "--out", str(tmp_path / "run"), "--json"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert found["test_images"] == 40
    assert found["test"]["accuracy"] > 0.6
    low, high = found["test_intervals"]["accuracy"]
    assert low < found["test"]["accuracy"] < high
    assert high - low == pytest.approx(2 * 1.96 * (0.25 / 40) ** 0.5, rel=0.6)  # of 40 rows, not of 200
    assert found["export"].endswith("run --head-only --out model.onnx")  # there is no backbone to deploy with it
    assert len(read_predictions(tmp_path / "run" / "predictions" / "test.parquet")) == 40


def test_without_labels_there_is_nothing_to_train(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 3)))
    with pytest.raises(DataError, match="no labels to train on"):
        FeatureCache.open(tmp_path / "x.npy")
