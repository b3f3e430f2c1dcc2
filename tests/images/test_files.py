"""Which files of a folder are pictures, in which order, and which are pictures that are not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.errors import DataError
from calibrant.images.files import any_picture, id_of, picture_files
from calibrant.images.layouts import list_images


def _touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")


def test_pictures_are_found_at_any_depth_in_order_of_their_path(tmp_path: Path) -> None:
    _touch(
        tmp_path, "b.PNG", "a/z.jpg", "a.b/c.tiff", "a/y/1.webp", "notes.txt", ".x.png", "c.jpg.txt", "d.NEF", "a/e.gif"
    )
    read, unread = picture_files(tmp_path)
    assert [id_of(p, tmp_path) for p in read] == ["a/y/1.webp", "a/z.jpg", "a.b/c.tiff", "b.PNG"]
    assert [id_of(p, tmp_path) for p in unread] == ["a/e.gif", "d.NEF"]


def test_a_folder_named_like_a_picture_is_a_folder_and_a_link_to_nowhere_a_picture(tmp_path: Path) -> None:
    _touch(tmp_path, "folder.png/1.jpg")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [id_of(p, tmp_path) for p in picture_files(tmp_path)[0]] == ["folder.png/1.jpg", "gone.png"]
    images = list_images(tmp_path / "folder.png").whole()
    assert images.ids == ("1.jpg",)


def test_a_link_to_nowhere_is_named_when_it_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match=r"gone\.png: no such file"):
        list_images(tmp_path).whole().image(0)


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: cannot be listed"):
        picture_files(tmp_path / "nowhere")


def test_any_picture_stops_at_hidden_folders(tmp_path: Path) -> None:
    _touch(tmp_path, ".cache/a.png", "__MACOSX/b.png", "text.txt", "._c.png")
    assert not any_picture(tmp_path)
    _touch(tmp_path, "deep/er/d.jpg")
    assert any_picture(tmp_path)
