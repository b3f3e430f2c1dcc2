"""The options that say what a file of predictions holds, where it does not tell itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from calibrant.artifacts.foreign.kinds import KINDS, Kind
from calibrant.artifacts.foreign.outcome import OUTCOMES, Outcome
from calibrant.artifacts.foreign.read import Asked

Command = TypeVar("Command", bound=Callable[..., Any])


def score_options(command: Command) -> Command:
    """`score_kind` and `outcome` of a command; `asked` makes one of them."""
    for option in (
        click.option("--outcome", type=click.Choice(OUTCOMES), help="independent: sigmoid, several labels a row."),
        click.option(
            "--probabilities", "score_kind", flag_value="probabilities", help="Short for --kind probabilities."
        ),
        click.option(
            "--kind", "score_kind", type=click.Choice(KINDS), help="What the scores are, where it is unclear."
        ),
    ):
        command = option(command)
    return command


def asked(kind: Kind | None, outcome: Outcome | None) -> Asked | None:
    return None if kind is None and outcome is None else Asked(kind, outcome)
