"""Which files there are below the folder, and what is left alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from calibrant.dashboard.folder import files
from calibrant.dashboard.folder.files import inside
from calibrant.dashboard.folder.index import scan
from calibrant.errors import DataError

from ..conftest import write_run


def test_links_that_lead_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside", rows=20)
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.parquet").symlink_to(outside / "predictions/test.parquet")
    (root / "folder").symlink_to(outside)
    folder_index = scan(root)
    assert folder_index.runs == ()
    assert [t.where for t in folder_index.troubles] == ["link.parquet"]


def test_inside_follows_links_and_dots(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "a" / "file").write_text("x")
    assert inside(tmp_path / "a", tmp_path / "a" / "file")
    assert not inside(tmp_path / "a", tmp_path / "a" / "link")
    assert not inside(tmp_path / "a", tmp_path / "a" / ".." / "secret")
    assert not inside(tmp_path / "a", tmp_path / "a" / "missing")


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "a", rows=10)
    old = time.time() - 60
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "predictions"):
        os.utime(folder, (old, old))
    scan(tmp_path)
    listed: list[Path] = []
    real = os.scandir
    monkeypatch.setattr(files.os, "scandir", lambda p: listed.append(Path(p)) or real(p))
    scan(tmp_path)
    assert listed == []
    (tmp_path / "a" / "new.json").write_text("{}")
    scan(tmp_path)
    assert listed == [tmp_path / "a"]


def test_temporary_files_and_foreign_endings_are_left_alone_and_the_order_is_that_of_names(tmp_path: Path) -> None:
    for name in ("b.json", "a.onnx", ".hidden.json", "half.tmp.3.json", "notes.txt", "tb/events.json", "c/d.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = [p.relative_to(tmp_path).as_posix() for p in files.walk(tmp_path, [])]
    assert found == ["a.onnx", "b.json", "c/d.parquet"]


def test_files_deeper_than_the_limit_are_not_looked_at(tmp_path: Path) -> None:
    deep = tmp_path
    for level in range(files.MAX_DEPTH + 1):
        deep = deep / f"{level}"
        deep.mkdir()
        (deep / "x.json").write_text("{}")
    depths = [len(p.relative_to(tmp_path).parts) - 1 for p in files.walk(tmp_path, [])]
    assert depths == list(range(1, files.MAX_DEPTH + 1))


def test_too_many_files_are_said_and_the_first_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_FILES", 3)
    for n in range(5):
        (tmp_path / f"{n}.json").write_text("{}")
    troubles: list[files.Trouble] = []
    assert [p.name for p in files.walk(tmp_path, troubles)] == ["0.json", "1.json", "2.json"]
    assert "more than 3 files" in troubles[0].what


def test_a_stamp_changes_with_the_file_and_a_folder_has_one_for_each_shard(tmp_path: Path) -> None:
    first, second = tmp_path / "0.parquet", tmp_path / "1.parquet"
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    before = files.stamps(tmp_path)
    assert [s.path for s in before] == [first, second]
    second.write_bytes(b"longer")
    assert files.stamps(tmp_path)[0] == before[0]
    assert files.stamps(tmp_path)[1] != before[1]
    second.unlink()
    with pytest.raises(DataError, match="cannot be read any more"):
        files.stamp(second)
