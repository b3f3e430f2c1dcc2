"""Tar shards by their headers."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from calibrant.errors import DataError
from calibrant.images.layouts import images_to_predict, list_images
from calibrant.train.config import DataConfig
from calibrant.train.data.sources import read_data


def _read(path: Path, **options: object) -> object:
    return read_data(DataConfig(path=path, **options))  # type: ignore[arg-type]


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


def test_labels_may_be_missing_and_strange_in_prediction(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, content in (
            ("x.png", b"1"),
            ("y.png", b"2"),
            ("y.cls", b"cran"),
            ("z.heic", b"3"),
            ("z.cls", b"auk"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    found = images_to_predict(tmp_path / "a.tar", ("auk", "crane"), split="test")
    assert found.ids == ("a.tar/x", "a.tar/y")
    assert found.labels.tolist() == [-1, -1]
    assert found.label_names == (None, "cran")
    assert list_images(tmp_path).unread == ("a.tar/z.heic",)
    with pytest.raises(DataError, match="a.tar/x has no label"):
        _read(tmp_path)
