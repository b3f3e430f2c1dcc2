"""The root command: what a user sees of mistakes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import calibrant
from calibrant.command_group import DefaultCommandGroup
from calibrant.commands.root import COMMANDS, cli, main

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "calibrant", *arguments],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_help_lists_every_command_and_gives_an_example() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in COMMANDS)
    assert "calibrant fit DIR" in result.output


def test_version_is_the_packages() -> None:
    assert calibrant.__version__ in CliRunner().invoke(cli, ["--version"]).output


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    result = run("exprot")
    assert result.returncode == 2
    assert result.stderr.strip() == 'Error: calibrant: no command "exprot"; did you mean "export"?'


def test_a_users_mistake_is_one_line_and_debug_shows_the_traceback() -> None:
    plain = run("evaluate", "no-such-file.parquet")
    assert plain.returncode == 2
    assert len(plain.stderr.strip().splitlines()) == 1
    assert "no-such-file.parquet" in plain.stderr
    assert "Traceback" in run("evaluate", "no-such-file.parquet", "--debug").stderr


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device", "model.onnx")

    monkeypatch.setattr(cli, "main", full)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "Error: model.onnx: No space left on device\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help_with_an_example(name: str) -> None:
    pytest.importorskip("torch")
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert any(f"calibrant {name}" in line for line in result.output.splitlines()[1:]), result.output


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "streamlit.py").write_text("raise ModuleNotFoundError('no', name='streamlit')")
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no', name='torch')")
    result = run("train", "--data", "x", "--out", "y", PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "pip install 'calibrant[train]'" in result.stderr
    assert "Traceback" not in result.stderr


@click.group(cls=DefaultCommandGroup, default_command="run", name="tool")
def tool() -> None:
    """A tool."""


@tool.command("run")
@click.argument("path")
@click.option("--size", default=1, help="How large.")
def _run(path: str, size: int) -> None:
    click.echo(f"run {path} {size}")


@tool.command("check")
@click.argument("path")
def _check(path: str) -> None:
    """Check it."""
    click.echo(f"check {path}")


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["a"], "run a 1"),
        (["a", "--size", "3"], "run a 3"),
        (["--size", "3", "a"], "run a 3"),
        (["check", "a"], "check a"),
    ],
)
def test_a_default_command_takes_what_is_not_a_sub_command(arguments: list[str], output: str) -> None:
    assert CliRunner().invoke(tool, arguments).output.strip() == output


def test_help_of_a_default_command_group_shows_its_options_and_the_others() -> None:
    output = CliRunner().invoke(tool, ["--help"]).output
    assert "--size" in output
    assert "check" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "a b.toml"], "The same line goes on where it stopped: calibrant sweep 'a b.toml'"),
        (["evaluate", "rows.parquet"], "What was finished before is complete and can be used."),
    ],
)
def test_ctrl_c_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    monkeypatch.setattr("sys.argv", ["calibrant", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.strip() == f"Stopped: interrupted. {said}"


def test_help_has_headings_that_hold_every_command_once() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    found = [line.split()[0] for line in text[text.index("Start here:") :].splitlines() if line.startswith("  ")]
    assert found == list(COMMANDS)
