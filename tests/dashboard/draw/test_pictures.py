from __future__ import annotations

import io
import json
import zlib
from pathlib import Path

import pytest
from PIL import Image

from calibrant.dashboard.draw import pictures
from calibrant.dashboard.folder.index import scan
from calibrant.errors import DataError

from ..conftest import write_run


def png(width: int, height: int, colour: str = "red") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(stream, "PNG")
    return stream.getvalue()


def bomb() -> bytes:
    """A valid PNG header of 30,000 x 30,000 pixels in a few bytes."""
    good = png(1, 1)
    size = (30_000).to_bytes(4, "big") * 2
    body = b"IHDR" + size + good[24:29]
    return good[:12] + body + zlib.crc32(body).to_bytes(4, "big") + good[33:]


def test_a_picture_comes_as_rgb() -> None:
    image = pictures.decode(png(4, 3), name="a.png")
    assert (image.size, image.mode, image.getpixel((0, 0))) == ((4, 3), "RGB", (255, 0, 0))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (bomb(), "pixels"),
        (b"<svg onload=alert(1)>", "not a JPEG, PNG"),
        (png(50, 50)[:-30], "cannot be decoded"),
        (b"", "not a JPEG, PNG"),
    ],
)
def test_a_hostile_or_broken_file_is_refused_in_our_words(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        pictures.decode(data, name="x.png")
    assert "BytesIO" not in str(caught.value)


def test_what_can_be_trained_on_can_be_shown_and_nothing_else() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (3, 3), "red").save(stream, "TIFF")
    assert pictures.decode(stream.getvalue(), name="x.tiff").getpixel((0, 0)) == (255, 0, 0)
    stream = io.BytesIO()
    Image.new("RGB", (3, 3)).save(stream, "GIF")
    with pytest.raises(DataError, match="x.gif: not a JPEG, PNG"):
        pictures.decode(stream.getvalue(), name="x.gif")


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/hosts", "a/../../secret.png", "link.png", "a\0.png", "gone.png"]
)
def test_no_id_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    (folder / "a").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(png(2, 2))
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "a" / "1.png").write_bytes(png(2, 2))
    assert pictures.find((folder,), name) is None
    found = pictures.find((folder,), "a/1.png")
    assert found is not None
    assert found.file.path == folder / "a" / "1.png"


def test_only_the_split_of_the_predictions_is_looked_at(tmp_path: Path) -> None:
    """train/x/1.png and test/x/1.png share an id; showing the other one would be a quiet lie."""
    run = write_run(tmp_path / "run", rows=20)
    for split in ("train", "test"):
        (run / "images" / split / "x").mkdir(parents=True)
    (run / "images" / "train" / "x" / "1.png").write_bytes(png(2, 2))
    folder_index = scan(tmp_path)
    test = folder_index.runs[0].find("test")
    assert test is not None
    where = pictures.folders(folder_index, folder_index.runs[0], test, ())
    assert where == (run / "images" / "test", run / "images")
    assert pictures.find(where, "x/1.png") is None
    found = pictures.find(where, "train/x/1.png")
    assert found is not None
    assert found.file.path == run / "images" / "train" / "x" / "1.png"


def test_a_data_folder_outside_is_used_only_when_it_was_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "x").mkdir(parents=True)
    (data / "x" / "1.png").write_bytes(png(2, 2))
    root = tmp_path / "runs"
    write_run(root / "run", rows=20, data=data)
    folder_index = scan(root)
    test = folder_index.runs[0].find("test")
    assert test is not None
    assert pictures.folders(folder_index, folder_index.runs[0], test, ()) == ()
    assert pictures.folders(folder_index, folder_index.runs[0], test, (data,)) == (data,)


def test_a_configuration_that_names_nonsense_is_no_folder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rows=20)
    for path in (7, "a\0b", None, {"x": 1}):
        (run / "config.json").write_text(json.dumps({"config": {"data": {"path": path}}}))
        folder_index = scan(tmp_path)
        assert pictures.folders(folder_index, folder_index.runs[0], folder_index.runs[0].predictions[0], ()) == ()
