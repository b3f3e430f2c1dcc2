"""Rows of numbers in every form that they come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.feature_table import read_features
from calibrant.errors import DataError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_npz_with_names_groups_and_splits(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(
        path, embeddings=X, label=["elm", "ash", "elm", "oak"], group=[1, 1, 2, 2], split=["train"] * 3 + ["valid"]
    )
    found = read_features(path)
    assert found.class_names == ("ash", "elm", "oak")
    assert found.labels.tolist() == [1, 0, 1, 2]
    assert found.groups == {"group": ("1", "1", "2", "2")}
    assert found.of_split("val").features.tolist() == [[9, 10, 11]]


def test_labels_are_joined_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=["elm", "ash", "elm", "ash"])
    assert read_features(tmp_path / "a.npz", class_names=["elm", "ash"]).labels.tolist() == [0, 1, 0, 1]


def test_a_pair_of_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "train_features.npy", X)
    np.save(tmp_path / "train_labels.npy", np.array([0, 1, 0, 1]))
    found = read_features(tmp_path / "train_features.npy")
    assert found.labels.tolist() == [0, 1, 0, 1]
    assert found.ids[0] == "train_features/0"


def test_parts_of_an_npz_by_split(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=X[:3], y_train=[0, 1, 1], x_test=X[3:], y_test=[0])
    found = read_features(tmp_path / "a.npz")
    assert found.split == ("train", "train", "train", "test")
    assert found.of_split("test").labels.tolist() == [0]


def test_columns_of_a_table_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,f10,f2,f1,label\na,3,2,1,cat\nb,6,5,4,dog\n")
    found = read_features(tmp_path / "a.csv")
    assert found.features.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert found.ids == ("a", "b")
    assert found.class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x": X, "y": np.array([0, 1])}, "2 labels for 4 rows"),
        ({"x": np.where(X == 5, np.nan, X)}, "row 2 are not finite"),
        ({"y": np.array([0, 1])}, "has no features"),
        ({"a": X, "b": X}, "several columns could be the features: a, b"),
        ({"x_train": X, "x_test": X[:, :2]}, "differ in width"),
    ],
)
def test_what_cannot_be(arrays: dict[str, np.ndarray], told: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=told):
        read_features(tmp_path / "a.npz")


def test_one_hot_labels_and_maps_of_one_place(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=X[:, :, None, None], labels=np.eye(3)[[2, 0, 1, 1]])
    found = read_features(tmp_path / "a.npz")
    assert found.features.tolist() == X.tolist()
    assert found.labels.tolist() == [2, 0, 1, 1]
    np.savez(tmp_path / "t.npz", features=X.reshape(2, 2, 3), labels=[0, 1])
    with pytest.raises(DataError, match=r"it has features \[2, 2, 3\], expected \[N, C\]"):
        read_features(tmp_path / "t.npz")


def test_minus_one_beside_one_is_no_class(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=X, labels=[-1, 1, 1, -1])
    with pytest.raises(DataError, match="labels are -1 and 1 and none is 0"):
        read_features(tmp_path / "a.npz")
