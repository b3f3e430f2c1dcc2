from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.train.cli import shards
from calibrant.train.config import DataConfig, TrainConfig
from calibrant.train.data.sources import read_data
from calibrant.train.data.split import Splits
from calibrant.train.data.write_shards import ROW_GROUP, write_shards


@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_shards_give_back_the_splits_bytes_and_classes_of_the_folder(
    image_folder: Path, tmp_path: Path, kind: str
) -> None:
    splits = read_data(DataConfig(path=image_folder))
    written = write_shards(splits, tmp_path / "out", kind=kind, images_per_shard=10)  # type: ignore[arg-type]
    assert len(written.files) == 4 + 2 + 2  # 31, 15 and 15 images
    again = read_data(DataConfig(path=tmp_path / "out"))
    assert again.class_names == splits.class_names
    assert again.test is not None
    assert splits.test is not None
    for a, b in ((again.train, splits.train), (again.val, splits.val), (again.test, splits.test)):
        assert a.labels.tolist() == b.labels.tolist()
        assert b.files is not None
        assert a.files is not None
        assert [f.read() for f in a.files] == [f.read_bytes() for f in b.files]  # type: ignore[union-attr]


def test_groups_keys_and_small_row_groups_travel_with_parquet(image_folder: Path, tmp_path: Path) -> None:
    lines = ["path,label,plant", *(f"train/{c}/{i:03d}.png,{c},{c}{i // 2}" for c in ("red", "blue") for i in range(6))]
    root = shutil.copytree(image_folder, tmp_path / "images")
    (root / "list.csv").write_text("\n".join(lines))
    out = tmp_path / "out"
    arguments = ["--data", str(root / "list.csv"), "--groups", "plant", "--out", str(out), "--json"]
    shown = CliRunner().invoke(shards, arguments, catch_exceptions=False)
    assert sum(json.loads(shown.stdout)["images"].values()) == 12
    splits = read_data(DataConfig(path=out, groups="group"))
    assert splits.test is not None
    keys = {i.partition(".parquet/")[2] for s in (splits.train, splits.val, splits.test) for i in s.ids}
    assert keys == {line.partition(",")[0] for line in lines[1:]}
    members = [set(s.groups or ()) for s in (splits.train, splits.val, splits.test)]
    assert set.union(*members) == {f"{c}{i}" for c in ("red", "blue") for i in range(3)}
    again = CliRunner().invoke(shards, arguments)
    assert "holds shards already" in str(again.exception)
    tar = CliRunner().invoke(shards, [*arguments, "--overwrite", "--format", "tar"])
    assert "cannot hold groups" in str(tar.exception)
    strange = CliRunner().invoke(shards, [*arguments, "--set", "loss.name=ce"])
    assert "says nothing about the data" in str(strange.exception)


def test_pixels_in_memory_become_png_and_overwriting_leaves_no_old_shard(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (40, 5, 5, 3)).astype(np.uint8)
    images = ImageSet(tuple(map(str, range(40))), np.arange(40) % 2, pixels=pixels)
    splits = Splits(("a", "b"), images.rows(np.arange(30)), images.rows(np.arange(30, 40)))
    write_shards(splits, tmp_path, images_per_shard=7)
    written = write_shards(splits, tmp_path, images_per_shard=20, overwrite=True)
    assert [f.name for f in sorted(tmp_path.iterdir())] == [
        "train-00000.parquet", "train-00001.parquet", "val-00000.parquet",
    ]  # fmt: skip
    assert written.images == {"train": 30, "val": 10}
    with pq.ParquetFile(tmp_path / "train-00000.parquet") as file:
        assert file.metadata.row_group(0).num_rows == ROW_GROUP
    again = read_data(DataConfig(path=tmp_path))
    np.testing.assert_array_equal(np.asarray(again.train.image(23)), pixels[23])


def test_a_shard_folder_can_be_packed_again_over_itself(image_folder: Path, tmp_path: Path) -> None:
    write_shards(read_data(DataConfig(path=image_folder)), tmp_path, images_per_shard=10)
    before = read_data(DataConfig(path=tmp_path))
    write_shards(before, tmp_path, images_per_shard=8, overwrite=True)
    after = read_data(DataConfig(path=tmp_path))
    source = read_data(DataConfig(path=image_folder)).train
    assert len(list(tmp_path.glob("train-*"))) == 4
    for i in (0, 9, 17, 30):
        np.testing.assert_array_equal(np.asarray(after.train.image(i)), np.asarray(source.image(i)))


def test_a_file_that_is_no_image_is_named_and_a_missing_one_too(image_folder: Path, tmp_path: Path) -> None:
    root = shutil.copytree(image_folder, tmp_path / "torn")
    splits = read_data(DataConfig(path=root))
    (root / "train/red/003.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"train/red/003\.png: not a JPEG"):
        write_shards(splits, tmp_path / "out")
    assert not [p for p in (tmp_path / "out").iterdir() if p.name.startswith(".")]
    (root / "train/red/003.png").unlink()
    with pytest.raises(DataError, match=r"train/red/003\.png: cannot be read"):
        write_shards(splits, tmp_path / "out", overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        write_shards(splits, tmp_path / "file")


def test_training_from_shards_equals_training_from_files(image_folder: Path, tmp_path: Path) -> None:
    from calibrant.train import fit, train_config
    from calibrant.train.run.folder import MODEL_FILE

    write_shards(read_data(DataConfig(path=image_folder)), tmp_path / "shards", images_per_shard=12)

    def config(data: Path, out: str, workers: int) -> TrainConfig:
        return train_config({
            "out": str(tmp_path / out), "data": {"path": str(data), "cache": "off", "workers": workers},
            "model": {"name": "test_resnet", "image_size": 32}, "schedule": {"epochs": 1},
            "engine": {"batch_size": 8, "tensorboard": False, "device": "cpu"},
        })  # fmt: skip

    from safetensors.torch import load_file

    a = load_file(fit(config(image_folder, "files", 0)) / MODEL_FILE)
    b = load_file(fit(config(tmp_path / "shards", "shards", 2)) / MODEL_FILE)
    assert all((a[k] == b[k]).all() for k in a)
