"""A command with other commands beside it."""

from __future__ import annotations

from typing import Any

import click


class DefaultCommandGroup(click.Group):
    """A group that hands its arguments to one command of its own when the first is not the name of another.

    Lets `calibrant calibrate PREDS` and `calibrant calibrate cross-check PREDS` stand side by side. The name of that
    command is no word of the command line: a run folder may be called `run`.
    """

    def __init__(self, *args: Any, default_command: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default_command = default_command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            args = ["--help"]
        if args[0] not in self.list_commands(ctx) and args[0] not in ("--help", "-h"):
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != self.default_command]

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, " ".join(self.commands[self.default_command].collect_usage_pieces(ctx)))
        formatter.write_usage(ctx.command_path, "COMMAND ...", prefix="   or: ")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What most people came for is the default command, so its text and examples are shown."""
        self.commands[self.default_command].format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.commands[self.default_command].format_options(ctx, formatter)
        rows = [(name, self.commands[name].get_short_help_str(80)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
