from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.errors import CalibrantError, DataError, FormatError
from calibrant.train.heads.features.cache import FeatureCache, write_manifest, write_shard


def test_what_was_written_is_read_in_order(cache: FeatureCache) -> None:
    rows = FeatureCache.open(cache.path).read("train")
    assert rows.ids == tuple(f"train/{j}" for j in range(120))
    assert rows.features.shape == (120, 12)
    assert np.bincount(rows.labels).tolist() == [20] * 6


def test_half_precision_is_stored_in_half_the_bytes_and_read_as_float32(tmp_path: Path, cache: FeatureCache) -> None:
    x = np.linspace(0, 1, 12 * 50, dtype=np.float32).reshape(50, 12)
    y = np.zeros(50, np.int64)
    sizes = []
    for storage in ("float32", "float16"):
        file = tmp_path / f"{storage}.parquet"
        write_shard(file, [str(i) for i in range(50)], y, x, storage)  # type: ignore[arg-type]
        table = pq.read_table(file)
        sizes.append(table.nbytes)
        assert table.schema.field("features").type.list_size == 12
    assert sizes[1] < 0.75 * sizes[0]


def damaged(cache: FeatureCache, change: Any) -> str:
    file = cache.shard("train", "eval", 1)
    change(file)
    with pytest.raises(CalibrantError) as error:
        cache.read("train")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_missing_label_column_is_one_clear_line(cache: FeatureCache) -> None:
    text = damaged(cache, lambda f: pq.write_table(pq.read_table(f).drop_columns("label"), f))
    assert 'has no column "label"' in text
    assert "id, features" in text


def test_rows_of_another_width_are_refused(cache: FeatureCache) -> None:
    def change(f: Path) -> None:
        write_shard(f, ["a"], np.zeros(1, np.int64), np.zeros((1, 5), np.float32), "float32")

    assert "features have width 5, features.json says 12" in damaged(cache, change)


def test_labels_beyond_the_classes_are_refused(cache: FeatureCache) -> None:
    def change(f: Path) -> None:
        write_shard(f, ["a"], np.asarray([6]), np.zeros((1, 12), np.float32), "float32")

    assert "label 6, but there are 6 classes" in damaged(cache, change)


def test_rows_without_label_are_refused(cache: FeatureCache) -> None:
    def change(f: Path) -> None:
        t = pq.read_table(f)
        pq.write_table(t.set_column(1, "label", pa.array([None] * len(t), pa.int64())), f)

    assert "a row has no label" in damaged(cache, change)


def test_features_that_are_not_finite_are_named_by_image(cache: FeatureCache) -> None:
    def change(f: Path) -> None:
        write_shard(f, ["bird.jpg"], np.zeros(1, np.int64), np.full((1, 12), np.nan, np.float32), "float32")

    assert "features of bird.jpg are not finite" in damaged(cache, change)


def test_an_incomplete_cache_says_how_to_go_on(cache: FeatureCache) -> None:
    assert "--split train --view eval goes on where it stopped" in damaged(cache, lambda f: f.unlink())


def test_a_damaged_shard_is_named(cache: FeatureCache) -> None:
    assert "not a readable Parquet file" in damaged(cache, lambda f: f.write_bytes(b"PAR1 no"))


def test_unknown_splits_and_views_name_the_nearest(cache: FeatureCache) -> None:
    with pytest.raises(DataError, match='did you mean "train"'):
        cache.read("trian")
    with pytest.raises(DataError, match='has no view "flp"; did you mean "flip"'):
        cache.read("train", "flp")


def test_folders_that_are_no_cache_or_newer_are_refused(tmp_path: Path, cache: FeatureCache) -> None:
    with pytest.raises(FormatError, match="not a feature cache"):
        FeatureCache.open(tmp_path)
    block = cache.manifest.to_dict() | {"format_version": 99}
    (cache.path / "features.json").write_text(json.dumps(block))
    with pytest.raises(FormatError, match="features format 99 is newer"):
        FeatureCache.open(cache.path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"name": "toy", "sha256": "1" * 64, "options": {}}}, "another model"),
        ({"preprocessing": {"size": [9, 9]}}, "preprocessing"),
        ({"pooling": "class"}, "pooling class, not head"),
        ({"seed": 7}, "seed 7, not 0"),
        ({"class_names": ("x",)}, "other classes"),
        ({"images": {"train": "y"}}, "images of train are not those"),
    ],
)
def test_a_cache_knows_what_it_was_made_from(change: dict[str, Any], words: str, cache: FeatureCache) -> None:
    other = replace(cache.manifest, **change)
    assert words in (other.difference(cache.manifest) or "")
    assert cache.manifest.difference(cache.manifest) is None


def test_the_manifest_survives_json(cache: FeatureCache) -> None:
    write_manifest(cache.path, cache.manifest)
    assert FeatureCache.open(cache.path).manifest.difference(cache.manifest) is None
