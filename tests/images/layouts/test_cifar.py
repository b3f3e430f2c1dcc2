"""CIFAR by its bytes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from calibrant.errors import DataError
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data


def _read(path: Path, **options: object) -> object:
    return read_data(DataConfig(path=path, **options))  # type: ignore[arg-type]


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


def test_a_python_file_without_its_labels_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a", "b"]}, 2))
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}, 4))
    with pytest.raises(DataError, match='data_batch_1: has no "labels"'):
        _read(tmp_path)
    (folder / "data_batch_1").write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}, 4))
    with pytest.raises(DataError, match="its data are not 1 rows of 3072 bytes"):
        _read(tmp_path)
