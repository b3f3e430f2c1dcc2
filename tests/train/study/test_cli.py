"""`calibrant study`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from calibrant.errors import ConfigError
from calibrant.train.study.cli import _places, study
from calibrant.train.study.file import read_study


def call(*arguments: object) -> str:
    done = CliRunner().invoke(study, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_list_has_names_and_titles() -> None:
    text = call("--list")
    assert "fedlas/table1" in text
    assert "controls" in text


def test_places_are_told_apart_by_name() -> None:
    for arguments, said in (
        (("fedlas/table1", "--data", "here"), "of which of cifar10, cifar100"),
        (("fedlas/table1", "--data", "cifar=here"), 'did you mean "cifar10"'),
        ((), "which study"),
    ):
        with pytest.raises(ConfigError, match=said):
            CliRunner().invoke(study, list(arguments), catch_exceptions=False)


def test_a_place_without_a_name_is_that_of_the_data_whose_recipe_reads_it(tmp_path: Path) -> None:
    for name, shown in (("cifar-100-python", "cifar100"), ("cifar-10-batches-py", "cifar10")):
        (tmp_path / name / name).mkdir(parents=True)
        assert _places((str(tmp_path / name),), read_study("fedlas/table1").data, []) == {shown: tmp_path / name}


def test_join_runs_nothing_and_a_run_prints_one_row_a_method(study_file: Path, squares: Path) -> None:
    out = study_file.parent / "out"
    line = (study_file, "--scale", "tiny", "--data", squares, "--out", out, "--seeds", 1)
    call(*line, "--join")
    assert not (out / "trainings").exists()
    assert "**Not finished: 0 of 4 runs.**" in (out / "table.md").read_text()
    assert [row.split("  ")[0] for row in call(*line).splitlines() if row.startswith(("ce ", "vace"))] == [
        "ce", "vace, lam 0", "ce", "vace, lam 0",
    ]  # fmt: skip


def test_differences_can_be_to_another_method_of_what_is_finished(study_file: Path, squares: Path) -> None:
    out = study_file.parent / "out"
    line = (study_file, "--scale", "tiny", "--data", squares, "--out", out, "--seeds", 1)
    call(*line)
    assert "| minus ce |" in (out / "table.md").read_text()
    stamps = {file.name: file.stat().st_mtime_ns for file in (out / "runs").iterdir()}
    call(*line, "--join", "--reference", "fedlas-ls")
    text = (out / "table.md").read_text()
    assert "| minus fedlas-ls |" in text
    assert "| minus ce |" not in text
    assert stamps == {file.name: file.stat().st_mtime_ns for file in (out / "runs").iterdir()}
    with pytest.raises(ConfigError, match='no method "fedlas".*did you mean "fedlas-ls"'):
        CliRunner().invoke(study, [str(a) for a in (*line, "--reference", "fedlas")], catch_exceptions=False)
