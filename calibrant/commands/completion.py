"""`calibrant completion SHELL`: the script that completes commands, options and choices."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    For this session:  eval "$(calibrant completion bash)"
    For good:
      calibrant completion bash > ~/.calibrant-complete.bash && echo '. ~/.calibrant-complete.bash' >> ~/.bashrc
      calibrant completion zsh > ~/.calibrant-complete.zsh && echo '. ~/.calibrant-complete.zsh' >> ~/.zshrc
      calibrant completion fish > ~/.config/fish/completions/calibrant.fish
    """
    from calibrant.commands.root import cli

    maker = get_completion_class(shell)
    assert maker is not None  # click brings all three
    click.echo(maker(cli, {}, "calibrant", "_CALIBRANT_COMPLETE").source())
