"""An option whose known words a shell completes takes any other word as well."""

from __future__ import annotations

import click
from click.testing import CliRunner

from calibrant.words import Words


def test_known_words_are_completed_and_others_taken() -> None:
    kind = Words(lambda: ("focal", "fedlas-ls", "vace"))
    option = click.Option(["--loss"], type=kind)

    @click.command(params=[option])
    def command(loss: str) -> None:
        click.echo(loss)

    assert CliRunner().invoke(command, ["--loss", "plugin:mine"]).output == "plugin:mine\n"
    found = kind.shell_complete(click.Context(command), option, "f")
    assert [item.value for item in found] == ["focal", "fedlas-ls"]
