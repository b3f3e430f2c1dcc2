"""A pickle is read as data or refused; nothing in it is ever called."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.errors import DataError
from calibrant.images.plain_pickle import read_pickle

DATA = {"a": [1, -2, 3000000, 1 << 70], "b": ("x", 1.5, None, True), "empty": [[], {}, ()], "text": "ü"}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_come_back(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "p").write_bytes(pickle.dumps(DATA, protocol))
    assert read_pickle(tmp_path / "p") == DATA


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_of_bytes_comes_back(tmp_path: Path, protocol: int, order: Any) -> None:
    array = np.asarray(np.arange(200, dtype=np.uint8).reshape(20, 10) % 251, order=order)
    (tmp_path / "p").write_bytes(pickle.dumps({"data": array}, protocol))
    np.testing.assert_array_equal(read_pickle(tmp_path / "p")["data"], array)


class _Hostile:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_call_is_refused_by_name_and_not_made(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "p").write_bytes(pickle.dumps([_Hostile(tmp_path / "made")], protocol))
    with pytest.raises(DataError, match="would call posix mkdir"):
        read_pickle(tmp_path / "p")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "content", [b"", b"no pickle", pickle.dumps(DATA)[:-20], b"\x80\x02(.", b"0.", b"\x80\x02h\x05.", b"cos\nsystem\n."]
)
def test_damage_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as pickled data|more than data"):
        read_pickle(tmp_path / "p")


def test_other_arrays_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(pickle.dumps(np.zeros(3), 4))
    with pytest.raises(DataError, match="other numbers than bytes"):
        read_pickle(tmp_path / "p")
    (tmp_path / "p").write_bytes(pickle.dumps(np.array([None, "x"], object), 4))
    with pytest.raises(DataError):
        read_pickle(tmp_path / "p")
    with pytest.raises(DataError, match="no such file"):
        read_pickle(tmp_path / "q")


def test_only_the_encoding_of_bytes_stands_for_bytes(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"\x80\x02c_codecs\nencode\n(X\x01\0\0\0aX\x06\0\0\0latin1tR.")
    assert read_pickle(tmp_path / "p") == b"a"
    (tmp_path / "p").write_bytes(b"\x80\x02cother\nencode\n(X\x01\0\0\0aX\x06\0\0\0latin1tR.")
    with pytest.raises(DataError, match="would call other encode"):
        read_pickle(tmp_path / "p")
