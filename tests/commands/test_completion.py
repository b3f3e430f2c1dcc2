"""`calibrant completion`: a script for each shell, which knows commands and choices."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from calibrant.commands.root import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_names_the_command(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_CALIBRANT_COMPLETE" in result.output


def test_completion_knows_the_commands_and_the_choices() -> None:
    from click.shell_completion import BashComplete

    complete = BashComplete(cli, {}, "calibrant", "_CALIBRANT_COMPLETE")
    assert {c.value for c in complete.get_completions([], "do")} == {"doctor"}
    assert {c.value for c in complete.get_completions(["completion"], "")} == {"bash", "zsh", "fish"}
