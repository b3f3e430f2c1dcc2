"""A command with other commands beside it."""

from __future__ import annotations

import click
from click.testing import CliRunner

from calibrant.command_group import DefaultCommandGroup


@click.group(cls=DefaultCommandGroup, default_command="fit")
def group() -> None:
    """Two commands."""


@group.command("fit")
@click.argument("path")
@click.option("--bins", default=15, help="How many.")
def fit(path: str, bins: int) -> None:
    """Fit on PATH."""
    click.echo(f"fit {path} {bins}")


@group.command("check")
@click.argument("path")
def check(path: str) -> None:
    """Check PATH."""
    click.echo(f"check {path}")


def said(*arguments: str) -> str:
    return CliRunner().invoke(group, list(arguments), catch_exceptions=False).output


def test_what_is_no_command_goes_to_the_default_one() -> None:
    assert said("a.parquet", "--bins", "3") == "fit a.parquet 3\n"
    assert said("--bins", "3", "a.parquet") == "fit a.parquet 3\n"
    assert said("fit") == "fit fit 15\n"  # a file may be called like the default command
    assert said("fit", "--bins", "3") == "fit fit 3\n"
    assert said("check", "a.parquet") == "check a.parquet\n"


def test_help_shows_the_options_of_the_default_and_the_names_of_the_others() -> None:
    for asked in ((), ("--help",), ("-h",)):
        text = said(*asked) if asked != ("-h",) else said("--help")
        assert "Fit on PATH." in text
        assert "--bins" in text
        assert "check" in text.split("Commands:")[1]
        assert "fit " not in text.split("Commands:")[1]
