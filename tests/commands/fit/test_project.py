"""The record of a fit: what is gone on with, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrant.commands.fit.project import Project, read
from calibrant.errors import ConfigError, DataError, FormatError

ASKED = {"preset": "fast", "seed": 1}


def test_steps_that_are_done_are_found_again(tmp_path: Path) -> None:
    Project.open(tmp_path / "p", ASKED, overwrite=False).finish("heads", {"chosen": "x"})
    again = Project.open(tmp_path / "p", ASKED, overwrite=False)
    assert again.done("heads") == {"chosen": "x"}
    assert again.done("export") is None
    assert Project.open(tmp_path / "p", ASKED, overwrite=True).done("heads") is None


def test_another_question_a_foreign_folder_and_a_file_are_refused(tmp_path: Path) -> None:
    Project.open(tmp_path / "p", ASKED, overwrite=False)
    with pytest.raises(ConfigError, match="holds a fit with seed 1"):
        Project.open(tmp_path / "p", {**ASKED, "seed": 2}, overwrite=False)
    (tmp_path / "f").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        Project.open(tmp_path / "f", ASKED, overwrite=True)
    with pytest.raises(ConfigError, match="was not made by calibrant fit"):
        Project.open(tmp_path, ASKED, overwrite=True)


def test_other_images_are_refused(tmp_path: Path) -> None:
    project = Project.open(tmp_path / "p", ASKED, overwrite=False)
    project.same_images("a")
    project.finish("data", {"images_sha256": "a"})
    project.same_images("a")
    with pytest.raises(DataError, match="not those"):
        project.same_images("b")


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "run", "format_version": 1}'])
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "fit.json").write_text(text)
    with pytest.raises(FormatError, match=r"not the record|is not"):
        read(tmp_path)


def test_a_newer_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fit.json").write_text('{"kind": "fit", "format_version": 99, "steps": {}, "settings": {}}')
    with pytest.raises(FormatError, match="newer"):
        read(tmp_path)
