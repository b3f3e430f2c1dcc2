"""What lies in a folder of models, and under what name and version."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.errors import DataError
from calibrant.serve.models.folder import models_in


def lay(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_three_ways_to_say_name_and_version(tmp_path: Path) -> None:
    lay(tmp_path, "birds/1/model.onnx", "birds/12/other.onnx", "fish@3.onnx", "trees.onnx")
    assert models_in(tmp_path) == {
        ("birds", "1"): tmp_path / "birds/1/model.onnx",
        ("birds", "12"): tmp_path / "birds/12/other.onnx",
        ("fish", "3"): tmp_path / "fish@3.onnx",
        ("trees", "1"): tmp_path / "trees.onnx",
    }


def test_what_is_hidden_unnumbered_or_ambiguous_is_no_model(tmp_path: Path) -> None:
    lay(
        tmp_path, ".birds.onnx", "birds/config.pbtxt", "birds/latest/model.onnx", "birds/2/a.onnx", "birds/2/b.onnx",
        "birds/3/.model.onnx", "a b.onnx", "notes.txt", "..data/1/model.onnx",
    )  # fmt: skip
    assert models_in(tmp_path) == {}


def test_one_version_in_two_places_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, "birds/1/model.onnx", "birds.onnx")
    with pytest.raises(DataError, match="both version 1 of birds"):
        models_in(tmp_path)


def test_a_folder_that_is_gone_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be listed"):
        models_in(tmp_path / "none")
