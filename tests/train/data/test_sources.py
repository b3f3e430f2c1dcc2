"""Every layout from a few images in the form in which its authors publish it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import ConfigError, DataError
from calibrant.images.image_set import ImageSet
from calibrant.images.layouts import layout_of
from calibrant.train.config import DataConfig
from calibrant.train.data.loader import BatchPlan
from calibrant.train.data.sources import long_tailed, read_data, sampling_weights


def _picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def _read(path: Path, **options: object) -> object:
    return read_data(DataConfig(path=path, **options))  # type: ignore[arg-type]


def test_a_csv_with_splits(tmp_path: Path) -> None:
    lines = ["path,label,split"]
    for i in range(12):
        _picture(tmp_path / "pics" / f"{i}.png", i)
        lines.append(f"pics/{i}.png,{'oak' if i % 2 else 'ash'},{('train', 'val', 'test')[i // 2 % 3]}")
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    splits = read_data(DataConfig(path=tmp_path / "list.csv"))
    assert splits.class_names == ("ash", "oak")
    assert splits.train.ids == ("pics/0.png", "pics/1.png", "pics/6.png", "pics/7.png")
    assert splits.train.labels.tolist() == [0, 1, 0, 1]
    assert splits.test is not None
    assert np.asarray(splits.test.image(0))[0, 0, 0] == 4


def test_a_csv_with_groups_keeps_each_group_in_one_split(tmp_path: Path) -> None:
    lines = ["file,class_id,plant"]
    for i in range(80):
        _picture(tmp_path / f"{i}.png", i)
        lines.append(f"{i}.png,{i % 2},p{i // 4}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    splits = read_data(DataConfig(path=tmp_path / "list.csv", groups="plant"))
    assert splits.test is not None
    groups = [set(s.groups or ()) for s in (splits.train, splits.val, splits.test)]
    assert not groups[0] & groups[1]
    assert not groups[0] & groups[2]
    assert sum(map(len, groups)) == 20
    with pytest.raises(DataError, match='no column "plants"; did you mean "plant"'):
        _read(tmp_path / "list.csv", groups="plants")


def test_mistakes_in_a_csv_are_named(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    _picture(tmp_path / "a.png", 1)
    file.write_text("picture,label\na.png,x\n")
    with pytest.raises(DataError, match="no column path or file .*it has picture, label"):
        _read(file)
    file.write_text("path,label\na.png,x\nb.png,y\n")
    with pytest.raises(DataError, match=r"line 3 names .*b\.png, which does not exist"):
        _read(file)
    file.write_text("path,label\na.png,x\na.png,\n")
    with pytest.raises(DataError, match="a.png has no label"):
        _read(file)
    file.write_text("path,label,split\na.png,x,train\na.png,y,holdout\n")
    with pytest.raises(DataError, match='split "holdout" is not train, val or test'):
        _read(file)


def test_ufg_lists_and_stages(tmp_path: Path) -> None:
    rows = {"train": 8, "val": 4, "train_val": 12, "test": 6, "train_R1": 4, "val_R1": 2, "test_R1": 2}
    for name, count in rows.items():
        lines = ["class_id,dir"]
        for i in range(count):
            _picture(tmp_path / "soybean2000" / f"{name}_{i}.png", i)
            lines.append(f"{i % 2},{name}_{i}.png")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    splits = read_data(DataConfig(path=tmp_path))
    assert layout_of(tmp_path) == "ufg"
    assert splits.test is not None
    assert [len(s) for s in (splits.train, splits.val, splits.test)] == [8, 4, 6]
    published = read_data(DataConfig(path=tmp_path, train_list="train_val"))
    assert [len(published.train), len(published.val)] == [10, 2]
    assert len(read_data(DataConfig(path=tmp_path, stage="R1")).train) == 4
    (tmp_path / "train.csv").write_text("label,dir\n0,a.png\n")
    with pytest.raises(DataError, match='no column "class_id"; it has label, dir'):
        _read(tmp_path)


def test_cub(tmp_path: Path) -> None:
    names = ["001.Albatross", "002.Crow"]
    (tmp_path / "classes.txt").write_text("1 001.Albatross\n2 002.Crow\n")
    listing = {"images.txt": "", "image_class_labels.txt": "", "train_test_split.txt": ""}
    for i in range(1, 13):
        file = f"{names[i % 2]}/{i}.jpg"
        _picture(tmp_path / "images" / file, i)
        listing["images.txt"] += f"{i} {file}\n"
        listing["image_class_labels.txt"] += f"{i} {i % 2 + 1}\n"
        listing["train_test_split.txt"] += f"{i} {int(i <= 8)}\n"
    for name, text in listing.items():
        (tmp_path / name).write_text(text)
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == tuple(names)
    assert splits.test is not None
    assert [len(s) for s in (splits.train, splits.val, splits.test)] == [6, 2, 4]
    assert all(
        splits.class_names[y] == i.split("/")[0] for y, i in zip(splits.test.labels, splits.test.ids, strict=True)
    )


def test_aircraft(tmp_path: Path) -> None:
    data = tmp_path / "data"
    _picture(data / "images" / "0034309.jpg", 3)
    (data / "variants.txt").write_text("707-320\nDHC-8 100\n")
    for split in ("train", "val", "test"):
        (data / f"images_variant_{split}.txt").write_text("0034309 DHC-8 100\n")
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == ("707-320", "DHC-8 100")
    assert splits.train.labels.tolist() == [1]
    (data / "images_variant_val.txt").write_text("0034309 Boeing\n")
    with pytest.raises(DataError, match='variant "Boeing" is not in variants.txt'):
        _read(tmp_path)


def test_tiny_imagenet(tmp_path: Path) -> None:
    (tmp_path / "wnids.txt").write_text("n02\nn01\n")
    for name in ("n01", "n02"):
        for i in range(5):
            _picture(tmp_path / "train" / name / "images" / f"{name}_{i}.JPEG", i)
    _picture(tmp_path / "val" / "images" / "val_0.JPEG", 9)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t62\t62\n")
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == ("n01", "n02")
    assert splits.test is not None
    assert (len(splits.train), len(splits.val), splits.test.labels.tolist()) == (8, 2, [1])


def test_cifar_binary_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    (folder / "batches.meta.txt").write_text("\n".join("abcdefghij") + "\n\n")
    image = rng.integers(0, 256, (32, 32, 3)).astype(np.uint8)
    planar = image.transpose(2, 0, 1).tobytes()
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (folder / name).write_bytes(b"".join(bytes([k]) + planar for k in range(10)))
    splits = read_data(DataConfig(path=tmp_path))
    assert (len(splits.train), len(splits.val)) == (40, 10)  # 10 % of 5 a class, at least one
    assert splits.test is not None
    assert splits.test.labels.tolist() == list(range(10))
    np.testing.assert_array_equal(np.asarray(splits.test.image(3)), image)
    (folder / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(DataError, match="3 bytes, not a multiple of 3073"):
        _read(tmp_path)


def test_cifar100_uses_fine_labels(tmp_path: Path) -> None:
    (tmp_path / "fine_label_names.txt").write_text("\n".join(f"class{i:03d}" for i in range(100)))
    row = b"".join(bytes([k // 5, k]) + bytes(3072) for k in range(100))
    (tmp_path / "train.bin").write_bytes(row * 3)
    (tmp_path / "test.bin").write_bytes(row)
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.test is not None
    assert splits.test.labels.tolist() == list(range(100))
    assert splits.train.counts(100).tolist() == [2] * 100


def test_tar_shards_are_read_in_place(tmp_path: Path) -> None:
    for s, split in enumerate(("train-0", "train-1", "test-0")):
        with tarfile.open(tmp_path / f"{split}.tar", "w") as tar:
            for i in range(10):
                stream = io.BytesIO()
                Image.fromarray(np.full((6, 6, 3), 20 * s + i, np.uint8)).save(stream, "PNG")
                for suffix, content in (("png", stream.getvalue()), ("cls", str(i % 2).encode())):
                    member = tarfile.TarInfo(f"dir/{i:04d}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    splits = read_data(DataConfig(path=tmp_path))
    assert splits.class_names == ("0", "1")
    assert splits.test is not None
    assert (len(splits.train), len(splits.val), len(splits.test)) == (16, 4, 10)
    for i in range(10):
        assert np.asarray(splits.test.image(i))[0, 0, 0] == 40 + i
        assert splits.test.labels[i] == i % 2
    (tmp_path / "test-0.tar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(DataError, match="test-0.tar.*tar archive"):
        _read(tmp_path)


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
