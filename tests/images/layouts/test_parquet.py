from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from calibrant.errors import CalibrantError, ConfigError, DataError
from calibrant.images.layouts import images_to_predict, list_images
from calibrant.images.row_groups import RowGroups
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data
from calibrant.train.data.split import Splits

CLASSES = ("auk", "bittern", "crane", "dunlin")


def _png(value: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((6, 6, 3), value, np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def _value(splits_image: Image.Image) -> int:
    return int(np.asarray(splits_image)[0, 0, 0])


def _write(file: Path, columns: dict[str, list[Any]], *, names: list[str] | None = None, rows: int = 4) -> None:
    table = pa.table(columns)
    if names is not None:
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, file, row_group_size=rows)


def _read(path: Path, **settings: Any) -> Splits:
    return read_data(DataConfig(path=path, **settings))


def test_shards_named_after_splits_give_their_images_in_any_order(tmp_path: Path) -> None:
    for s, split in enumerate(("train-0", "train-1", "validation-0", "test-0")):
        columns = {"image": [_png(20 * s + i) for i in range(10)], "label": [f"c{i % 2}" for i in range(10)]}
        _write(tmp_path / f"{split}.parquet", columns)
    splits = _read(tmp_path)
    assert splits.class_names == ("c0", "c1")
    assert splits.test is not None
    assert (len(splits.train), len(splits.val), len(splits.test)) == (20, 10, 10)
    for i in np.random.default_rng(0).permutation(20):  # over row groups and shards
        assert _value(splits.train.image(i)) == 20 * (i // 10) + i % 10
        assert splits.train.labels[i] == i % 2
    assert splits.train.ids[:2] == ("train-0.parquet/0", "train-0.parquet/1")


def test_a_struct_with_named_numbers_is_read_as_hugging_face_writes_it(tmp_path: Path) -> None:
    images = [{"bytes": _png(i), "path": f"leaf{i}.png"} for i in range(8)]
    _write(
        tmp_path / "train-00000-of-00001.parquet", {"image": images, "label": [2, 0] * 4}, names=["oak", "elm", "ash"]
    )
    _write(
        tmp_path / "test-00000-of-00001.parquet", {"image": images, "label": [1, 2] * 4}, names=["oak", "elm", "ash"]
    )
    splits = _read(tmp_path)
    assert splits.class_names == ("oak", "elm", "ash")  # numbers mean their names, also that no row has
    assert splits.test is not None
    assert splits.test.labels.tolist() == [1, 2] * 4
    assert splits.test.ids[3] == "test-00000-of-00001.parquet/leaf3.png"
    assert _value(splits.test.image(5)) == 5


def test_split_and_group_columns_are_obeyed(tmp_path: Path) -> None:
    n = 40
    columns: dict[str, list[Any]] = {
        "key": [f"k{i}" for i in range(n)], "image": [_png(i) for i in range(n)], "label": [i % 2 for i in range(n)],
        "plant": [i // 4 for i in range(n)],
    }  # fmt: skip
    _write(tmp_path / "all.parquet", columns)
    splits = _read(tmp_path, groups="plant")
    assert splits.test is not None
    parts = [set(s.groups or ()) for s in (splits.train, splits.val, splits.test)]
    assert sum(map(len, parts)) == 10
    assert len(set.union(*parts)) == 10
    columns["split"] = ["train", "train", "valid", "test"] * 10
    _write(tmp_path / "all.parquet", columns)
    splits = _read(tmp_path / "all.parquet")  # one file is a data set too
    assert splits.test is not None
    assert splits.test.ids == tuple(f"all.parquet/k{i}" for i in range(3, n, 4))
    assert [_value(splits.val.image(i)) for i in range(3)] == [2, 6, 10]
    with pytest.raises(DataError, match=r'group "\d" is in train and in (val|test)'):
        _read(tmp_path, groups="plant")


@pytest.mark.parametrize(
    ("columns", "settings", "said"),
    [
        ({"image": [b"x"] * 4, "species": ["a", "b"] * 2}, {}, "no column label, labels, class or fine_label.*species"),
        ({"logits": [[0.1]] * 4, "label": ["a", "b"] * 2}, {}, "no column of image bytes.*predictions file"),
        ({"image": [b"x"] * 4, "label": ["a", "b", None, "b"]}, {}, "train.parquet/2 has no label"),
        ({"image": [b"x"] * 4, "label": [0, 1, -1, 1]}, {}, "train.parquet/2 has no label"),
        ({"image": [b"x"] * 4, "label": [0.5, 1.0, 0.0, 1.0]}, {}, "label of row 0 is 0.5"),
        ({"image": [b"x"] * 4, "label": ["a"] * 4}, {}, "has one class"),
        ({"image": [b"x"] * 4, "label": ["a", "b"] * 2}, {"groups": "plnt"}, 'has no column "plnt"'),
        ({"image": [b"x"] * 4, "label": ["a", "b"] * 2, "split": ["train", "dev", "test", "x"]}, {}, 'split "x" is'),
        ({"image": [], "label": []}, {}, "no column of image bytes|holds no rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(
    tmp_path: Path, columns: dict[str, list[Any]], settings: dict[str, Any], said: str
) -> None:
    _write(tmp_path / "train.parquet", columns)
    with pytest.raises(DataError, match=said):
        _read(tmp_path, **settings)


def test_damage_is_told_by_file_and_by_row(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"image": [_png(i) for i in range(40)], "label": ["a", "b"] * 20}
    columns["image"][3] = None
    columns["image"][5] = b"no image"
    file = tmp_path / "train.parquet"
    _write(file, columns)
    splits = _read(tmp_path)
    wrong = {}
    for images in (splits.train, splits.val):
        for i in range(len(images)):
            try:
                images.image(i)
            except DataError as error:
                wrong[str(error.where)] = error.what
    assert wrong == {
        "train.parquet/3": "has no bytes in its row",
        "train.parquet/5": "not a JPEG, PNG, WebP, BMP or TIFF image",
    }
    content = bytearray(file.read_bytes())
    start = pq.ParquetFile(file).metadata.row_group(0).column(0).data_page_offset
    content[start : start + 40] = bytes(40)  # the images of the first row group
    file.write_bytes(content)
    splits = _read(tmp_path, val_fraction=0.1)
    with pytest.raises(DataError, match="row group 0 cannot be read"):
        splits.train.image(0)
    assert _value(splits.train.image(30)) > 20  # other row groups are as they were
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="train.parquet.*cannot be read as a Parquet file"):
        _read(tmp_path)
    file.unlink()
    with pytest.raises(CalibrantError):
        _read(tmp_path)


def test_shards_must_agree_on_names_and_on_being_named(tmp_path: Path) -> None:
    columns = {"image": [_png(1)] * 4, "label": [0, 1] * 2}
    _write(tmp_path / "train-0.parquet", columns, names=["a", "b"])
    _write(tmp_path / "train-1.parquet", columns, names=["b", "a"])
    with pytest.raises(DataError, match="train-1.parquet.*otherwise than the shards before"):
        _read(tmp_path)
    _write(tmp_path / "train-1.parquet", columns)
    with pytest.raises(DataError, match="otherwise"):
        _read(tmp_path)
    (tmp_path / "train-1.parquet").rename(tmp_path / "more.parquet")
    _write(tmp_path / "more.parquet", columns, names=["a", "b"])
    with pytest.raises(DataError, match="some shards are named after a split"):
        _read(tmp_path)
    (tmp_path / "x.tar").write_bytes(b"")
    with pytest.raises(DataError, match="holds tar and Parquet"):
        _read(tmp_path)


def test_groups_elsewhere_are_refused_by_layout(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"")
    with pytest.raises(ConfigError, match="belongs to the layout csv or parquet, but these data are tar"):
        _read(tmp_path, groups="plant")


def test_the_row_groups_read_last_are_kept_up_to_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import calibrant.images.row_groups as module

    _write(tmp_path / "a.parquet", {"image": [bytes([i]) * 100 for i in range(12)], "label": ["a", "b"] * 6})
    monkeypatch.setattr(module, "KEPT_BYTES", 1000)  # two groups of four rows, and not three
    kept = RowGroups()
    read: list[int] = []
    original = kept._read
    monkeypatch.setattr(
        kept, "_read", lambda path, group, column: (read.append(group), original(path, group, column))[1]
    )
    for group in (0, 1, 0, 2, 0, 1):
        assert kept.get(tmp_path / "a.parquet", group, "image")[0].as_py() == bytes([4 * group]) * 100
    assert read == [0, 1, 2, 1]  # 1 went when 2 came, since 0 had been used since


def test_numbers_that_hugging_face_names_are_read_by_name(tmp_path: Path) -> None:
    """Another order of the classes than the model's: the names count."""
    columns: dict[str, list[Any]] = {"image": [_png(0)] * 3, "label": [0, 3, -1]}
    _write(tmp_path / "a.parquet", columns, names=["crane", "auk", "dunlin", "bittern"])
    found = images_to_predict(tmp_path / "a.parquet", CLASSES, split="test")
    assert found.labels.tolist() == [2, 1, -1]
    assert found.ids == ("a.parquet/0", "a.parquet/1", "a.parquet/2")
    assert found.label_names is None
    other = images_to_predict(tmp_path / "a.parquet", ("cranes", "bittern"), split="test")
    assert other.labels.tolist() == [-1, 1, -1]
    assert other.label_names == ("crane", "bittern", None)


def test_numbers_without_names_are_the_models_unless_one_cannot_be(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", {"image": [_png(0)] * 3, "label": [0, 3, 1]})
    assert images_to_predict(tmp_path / "a.parquet", CLASSES, split="test").labels.tolist() == [0, 3, 1]
    _write(tmp_path / "a.parquet", {"image": [_png(0)] * 3, "label": [0, 4, 1]})
    found = images_to_predict(tmp_path / "a.parquet", CLASSES, split="test")
    assert found.labels.tolist() == [-1, -1, -1]
    assert found.label_names == ("0", "4", "1")


def test_fine_labels_of_the_hubs_cifar100_are_found_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    images = [{"bytes": _png(i), "path": None} for i in range(4)]
    table = pa.table({"img": images, "fine_label": [1, 0, 1, 0], "coarse_label": [0] * 4})
    features = {"features": {"fine_label": {"names": ["apple", "bee"]}}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": features})})
    pq.write_table(table, tmp_path / "data" / "test-00000-of-00001.parquet")
    (tmp_path / "README.md").write_text("")
    found = images_to_predict(tmp_path, ("apple", "bee"), split="test")
    assert found.labels.tolist() == [1, 0, 1, 0]
    assert found.ids[0] == "test-00000-of-00001.parquet/0"


def test_a_stream_reads_only_the_row_groups_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        _write(tmp_path / f"{name}.parquet", {"image": [_png(n) for n in range(20)]})
    found = images_to_predict(tmp_path, CLASSES, split="test")
    read: list[int] = []
    original = pq.ParquetFile.iter_batches

    def noted(self: Any, rows: int, *, row_groups: list[int], columns: list[str]) -> Any:
        read.append(*row_groups)
        return original(self, rows, row_groups=row_groups, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    for start, stop, groups in ((0, 40, 10), (3, 9, 3), (18, 23, 2), (39, 40, 1), (5, 5, 0)):
        read.clear()
        got = [(i, _value(opened())) for i, opened in found.in_order(start, stop)]
        assert got == [(n, n % 20) for n in range(start, stop)]
        assert len(read) == groups


def test_a_column_of_splits_chooses_rows(tmp_path: Path) -> None:
    splits = ["train", "test", "train", "validation", "test", "train", "test"]
    columns = {"image": [_png(n) for n in range(7)], "split": splits, "label": list("0120123")}
    for name in ("a", "b"):
        _write(tmp_path / f"{name}.parquet", columns, rows=2)
    found = images_to_predict(tmp_path, CLASSES, split="test")
    assert found.ids == tuple(f"{name}.parquet/{n}" for name in "ab" for n in (1, 4, 6))
    assert found.labels.tolist() == [1, 1, 3] * 2
    assert [_value(opened()) for _, opened in found.in_order(1, 5)] == [4, 6, 1, 4]
    assert images_to_predict(tmp_path / "a.parquet", CLASSES, split="dev").ids == ("a.parquet/3",)
    with pytest.raises(DataError, match='no split "holdout".*train, test, val'):
        images_to_predict(tmp_path, CLASSES, split="holdout")


def test_a_listing_travels_to_another_process_without_its_open_files(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", {"image": [_png(n) for n in range(8)], "label": ["a", "b"] * 4})
    images = list_images(tmp_path).whole()
    assert _value(images.image(5)) == 5
    again = pickle.loads(pickle.dumps(images))
    assert [_value(again.image(i)) for i in (7, 0)] == [7, 0]
    assert len({id(file.shard.kept) for file in again.files}) == 1


def test_what_is_no_shard_is_said(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match="cannot be read as a Parquet file"):
        images_to_predict(tmp_path / "b.parquet", CLASSES, split="test")
    pq.write_table(pa.table({"id": ["a"], "logits": [[0.0]]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="no column of image bytes .*predictions file"):
        images_to_predict(tmp_path / "c.parquet", CLASSES, split="test")
    (tmp_path / "a.tar").write_bytes(b"")
    with pytest.raises(DataError, match="holds tar and Parquet shards"):
        images_to_predict(tmp_path, CLASSES, split="test")


def test_a_row_without_bytes_is_named_in_a_stream_as_alone(tmp_path: Path) -> None:
    _write(tmp_path / "a.parquet", {"image": [_png(0), None]})
    images = list_images(tmp_path).whole()
    (_, good), (_, bad) = images.in_order(0, 2)
    assert _value(good()) == 0
    for read in (bad, lambda: images.image(1)):
        with pytest.raises(DataError, match="has no bytes in its row") as caught:
            read()
        assert str(caught.value.where) == "a.parquet/1"
