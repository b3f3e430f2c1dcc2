"""One setting of a configuration: its default and, beside it, all that a help text, a check or a control asks of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """allowed: numbers outside are refused. slider: low, high and step of a control, inside `allowed`.

    none: where on that slider a setting lies that is not given. read_by: kinds of head that read it; none named: all.
    text: what a line of text for it holds. choices: names, where the type does not list them.
    """

    label: str
    help: str
    allowed: tuple[float, float] | None = None
    slider: tuple[float, float, float] | None = None
    none: float | None = None
    read_by: tuple[str, ...] = ()
    text: Literal["", "numbers", "names", "name", "settings"] = ""
    choices: tuple[str, ...] = ()


def option(default: T, label: str, help: str, **more: Any) -> T:
    """A field of a dataclass with its description in the metadata."""
    metadata = {"option": Option(label, help, **more)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)  # type: ignore[return-value]
    return dataclasses.field(default=default, metadata=metadata)


def options_of(table: Any) -> dict[str, Option]:
    """The described fields of a dataclass, by name."""
    return {f.name: f.metadata["option"] for f in dataclasses.fields(table) if "option" in f.metadata}
