"""Options whose words come from a table: any text is taken, as plugins add words; a shell completes the known ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem


class Words(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """`known` is called by a shell only, so it may import what the command itself imports late."""

    name = "text"

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self.known = known

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self.known() if word.startswith(incomplete)]
