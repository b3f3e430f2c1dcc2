"""The predictions file keeps what it was given and refuses what it cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.predictions import Predictions, PredictionsFile, PredictionsWriter, Source, read_predictions
from calibrant.errors import CalibrantError, DataError, FormatError


def some(n: int = 5, classes: int = 3, *, seed: int = 0, features: bool = False) -> Predictions:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    labels[0] = -1
    source = Source(
        tuple(f"k{i}" for i in range(classes)), tuple([1 / classes] * classes), 1.0, (0.5,) * classes, {"name": "net"}
    )
    return Predictions(
        tuple(f"row/{i}" for i in range(n)),
        labels,
        rng.normal(size=(n, classes)).astype(np.float32),
        source,
        rng.normal(size=(n, 4)).astype(np.float32) if features else None,
        ("val",) * n,
    )


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    before = some(features=True)
    before.write(tmp_path / "p.parquet")
    after = read_predictions(tmp_path / "p.parquet", features=True)
    assert after.ids == before.ids
    assert after.split == before.split
    assert after.source == before.source
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.logits, before.logits)
    assert after.features is not None
    np.testing.assert_array_equal(after.features, before.features)
    assert read_predictions(tmp_path / "p.parquet").features is None


def test_an_unknown_label_is_null_in_the_file_and_left_out_of_labelled(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    some().write(tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["label"].null_count == 1
    assert len(read_predictions(tmp_path / "p.parquet").labelled()) == 4


def test_shards_in_a_folder_are_one_table_in_order_of_name(tmp_path: Path) -> None:
    first, second = some(seed=1), some(seed=2)
    second.write(tmp_path / "part-1.parquet")
    first.write(tmp_path / "part-0.parquet")
    file = PredictionsFile.open(tmp_path)
    assert file.rows == 10
    np.testing.assert_array_equal(file.read().logits, np.concatenate([first.logits, second.logits]))
    sizes = [len(batch) for batch in file.batches(2)]
    assert sum(sizes) == 10
    assert max(sizes) <= 2


def test_shards_of_another_model_are_refused(tmp_path: Path) -> None:
    some().write(tmp_path / "a.parquet")
    some(classes=4).write(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: was written for another model"):
        PredictionsFile.open(tmp_path)


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with PredictionsWriter(tmp_path / "p.parquet", some().source) as writer:
            writer.append(["a"], None, np.zeros((1, 3)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_has_no_rows_and_keeps_its_classes(tmp_path: Path) -> None:
    with PredictionsWriter(tmp_path / "p.parquet", some().source):
        pass
    read = read_predictions(tmp_path / "p.parquet")
    assert len(read) == 0
    assert read.class_names == ("k0", "k1", "k2")


def test_a_label_beyond_the_classes_is_named(tmp_path: Path) -> None:
    good = some()
    Predictions(good.ids, np.array([0, 1, 2, 12, 1]), good.logits, good.source).write(tmp_path / "p.parquet")
    with pytest.raises(DataError, match="labels contain 12 but there are 3 classes"):
        read_predictions(tmp_path / "p.parquet")


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    some().write(tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    text = table.schema.metadata[b"calibrant"].replace(b'"format_version": 1', b'"format_version": 99')
    pq.write_table(table.replace_schema_metadata({b"calibrant": text}), tmp_path / "new.parquet")
    with pytest.raises(FormatError, match="format 99 is newer"):
        read_predictions(tmp_path / "new.parquet")


def test_foreign_files_are_refused_in_one_line(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "text.parquet").write_text("hello")
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "other.parquet")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    some().write(tmp_path / "cut.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "cut.parquet").read_bytes()[:200])
    for name in ("text.parquet", "other.parquet", "other.npz", "cut.parquet", "missing.parquet"):
        with pytest.raises(CalibrantError, match=name) as caught:
            read_predictions(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_the_hash_follows_the_content_and_not_the_name(tmp_path: Path) -> None:
    some().write(tmp_path / "a.parquet")
    some().write(tmp_path / "b.parquet")
    some(seed=9).write(tmp_path / "c.parquet")
    a, b, c = (PredictionsFile.open(tmp_path / f"{n}.parquet").sha256() for n in "abc")
    assert a == b
    assert a != c
