"""A reader sees the old file or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from calibrant.atomic import replacing, write_json, write_text


def test_an_error_in_the_block_keeps_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_lies_beside_and_keeps_the_suffix(tmp_path: Path) -> None:
    with replacing(tmp_path / "sub" / "model.onnx") as temporary:
        assert temporary.parent == tmp_path / "sub"
        assert temporary.suffix == ".onnx"
        temporary.write_bytes(b"1")
    assert (tmp_path / "sub" / "model.onnx").read_bytes() == b"1"


def test_json_never_holds_a_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"ä": 1.5})
    assert json.loads((tmp_path / "a.json").read_text()) == {"ä": 1.5}
    with pytest.raises(ValueError):
        write_json(tmp_path / "b.json", {"x": float("nan")})
    assert not (tmp_path / "b.json").exists()


def test_a_link_stays_and_what_it_points_to_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "v1.txt", tmp_path / "current.txt"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to("v1.txt")
    write_text(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_new_file_has_the_permissions_of_the_umask_whoever_wrote_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "weights.safetensors") as temporary:
            temporary.write_bytes(b"x")
            temporary.chmod(0o600)  # as safetensors leaves it
    finally:
        os.umask(before)
    assert (tmp_path / "weights.safetensors").stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]
