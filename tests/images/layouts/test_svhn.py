"""SVHN by its .mat files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from calibrant.errors import DataError
from calibrant.images.layouts import layout_of, list_images


def write(file: Path, n: int) -> np.ndarray:
    x = np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3)).astype(np.uint8)
    savemat(file, {"X": x.transpose(1, 2, 3, 0), "y": np.array([[1 + i % 10] for i in range(n)], np.uint8)})
    return x


def test_ten_stands_for_the_digit_zero_and_pixels_stay_upright(tmp_path: Path) -> None:
    write(tmp_path / "train_32x32.mat", 4)
    x = write(tmp_path / "test_32x32.mat", 12)
    assert layout_of(tmp_path) == "svhn"
    found = list_images(tmp_path)
    assert found.class_names == tuple("0123456789")
    assert found.sets["test"].labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    np.testing.assert_array_equal(np.asarray(found.sets["test"].image(11)), x[11])


def test_one_file_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "test_32x32.mat", 3)
    assert len(list_images(tmp_path / "test_32x32.mat").of_split("test")) == 3


def test_other_mat_files_are_named(tmp_path: Path) -> None:
    savemat(tmp_path / "test_32x32.mat", {"X": np.zeros((2, 2)), "y": [[1], [2]]})
    with pytest.raises(DataError, match="not .32, 32, 3, N."):
        list_images(tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"no matrix at all")
    with pytest.raises(DataError, match="cannot be read as a .mat file"):
        list_images(tmp_path)
