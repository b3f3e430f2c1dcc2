"""The card says where the file came from; the file appears when it is proved, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant._version import __version__
from calibrant.artifacts.onnx_file import OnnxFile
from calibrant.errors import CheckFailed, DataError
from calibrant.export.adoption import deployed
from calibrant.export.adoption.reading.foreign import sha256_of

from .conftest import NAMES, SIZE, Foreigners


def plain(foreigners: Foreigners) -> Path:
    return foreigners.write(lambda m: m.head(m.body(), output="scores"))


def test_the_card_says_what_was_adopted(foreigners: Foreigners) -> None:
    path = plain(foreigners)
    foreigners.adopt(path, author="somebody")
    card = OnnxFile.open(foreigners.adopted).card()
    assert card.classes == NAMES
    assert (card.name, card.author) == ("foreign", "somebody")
    assert card.versions["calibrant"] == __version__
    assert card.adopted["sha256"] == sha256_of(path) == card.source["checkpoint_sha256"]
    assert card.adopted["producer"].startswith("by hand")
    assert (card.adopted["output"], card.adopted["kind"], card.adopted["opset"]) == ("scores", "logits", 17)
    assert card.adopted["input"]["size"] == [SIZE, SIZE]
    assert card.precision == {"dtype": "float32"}
    assert card.verify is not None


def test_a_file_that_is_not_proved_does_not_appear(foreigners: Foreigners, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(proof: object, out: Path) -> None:
        raise CheckFailed("answers otherwise", where=out)

    path = plain(foreigners)
    monkeypatch.setattr(deployed, "require", refused)
    with pytest.raises(CheckFailed, match="answers otherwise"):
        foreigners.adopt(path)
    assert sorted(p.name for p in foreigners.folder.iterdir()) == ["foreign.onnx"]


def test_a_folder_is_no_place_for_it(foreigners: Foreigners) -> None:
    path = plain(foreigners)
    foreigners.adopted.mkdir()
    with pytest.raises(DataError, match="is a folder"):
        foreigners.adopt(path)
