"""npz and npy as numpy writes them; pickles never."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrant.artifacts.foreign.numpy_files import read_npy, read_npz
from calibrant.errors import DataError, FormatError


@pytest.mark.parametrize(
    ("scores", "labels"),
    [("logits", "labels"), ("test_probs", "test_labels"), ("resnet-logits-val", "resnet-y_true-val")],
)
def test_labels_lie_in_the_file_of_like_name(tmp_path: Path, scores: str, labels: str) -> None:
    np.save(tmp_path / f"{scores}.npy", np.ones((2, 3)))
    np.save(tmp_path / f"{labels}.npy", np.arange(2))
    found = read_npy(tmp_path / f"{scores}.npy")
    assert found.values["labels"].tolist() == [0, 1]
    assert found.beside == (tmp_path / f"{labels}.npy",)


def test_arrays_without_names_are_scores_and_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", np.eye(3), np.arange(3))
    assert list(read_npz(tmp_path / "p.npz").values) == ["scores", "labels"]
    np.savez(tmp_path / "r.npz", np.arange(3), np.eye(3))
    assert read_npz(tmp_path / "r.npz").values["labels"].tolist() == [0, 1, 2]
    np.savez(tmp_path / "q.npz", np.eye(3), np.eye(3))  # two matrices may be anything
    assert list(read_npz(tmp_path / "q.npz").values) == ["arr_0", "arr_1"]


def test_objects_are_refused_with_the_way_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", logits=np.ones((2, 3)), labels=np.array(["a", None], object))
    with pytest.raises(FormatError, match=r"pickles; save text as names\.astype\(str\)"):
        read_npz(tmp_path / "p.npz")
    np.save(tmp_path / "p.npy", np.array(["a", None], object))
    with pytest.raises(FormatError, match="pickles"):
        read_npy(tmp_path / "p.npy")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(40)])
def test_what_is_no_array_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    for name, read in (("p.npz", read_npz), ("p.npy", read_npy)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises((FormatError, DataError), match=name) as caught:
            read(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_text_may_be_bytes(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", classes=np.array([b"ash", b"elm"]), logits=np.ones((2, 2)))
    assert read_npz(tmp_path / "p.npz").values["classes"].tolist() == ["ash", "elm"]
