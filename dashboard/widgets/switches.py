"""The switches of `calibrant head`, as the Laboratory offers them: what each does, its range, its default.

Off by default, all of them. They are read from the settings of the command (calibrant/settings/heads.py), which lie on
the floor because the dashboard must not load torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from calibrant.errors import ConfigError
from calibrant.settings.heads import HeadConfig
from calibrant.settings.option import options_of

Value = bool | int | float | str
BY_HAND = "by hand"


@dataclass(frozen=True)
class Switch:
    """`options` makes a choice, `limits` a slider (whole numbers where all three are whole), neither a line of text."""

    key: str  # table.key as --set takes it; "table.key:how" chooses a word in the place of that key's number
    label: str
    default: Value
    help: str
    options: tuple[str, ...] = ()
    limits: tuple[float, float, float] | None = None  # low, high, step
    read_by: tuple[str, ...] = ()  # kinds of head that read it; none named: all
    text: str = ""  # what a line of text holds: "numbers", "names", "name", "settings"

    def tooltip(self) -> str:
        default = f"`{self.default}`" if self.default != "" else "nothing"
        only = f" Read by: {', '.join(self.read_by)}." if self.read_by else ""
        return f"{self.help}{only} Default: {default}. Set as `{self.key.partition(':')[0]}`."

    def applies_to(self, kind: str) -> bool:
        return not self.read_by or kind in self.read_by


def _switches(table: Any, prefix: str) -> list[Switch]:
    """The controls of one table of the configuration; a number that may be a word too gets a second one."""
    hints = get_type_hints(type(table))
    found: list[Switch] = []
    for name, described in options_of(table).items():
        value, words = getattr(table, name), _words(hints[name])
        key = f"{prefix}{name}"
        common = Switch(key, described.label, "", described.help, read_by=described.read_by, text=described.text)
        if described.slider is not None:
            default = described.none if value is None else value
            assert default is not None  # a test holds: every setting that may be left out has its place on the slider
            found.append(replace(common, default=default, limits=described.slider))
            if words:
                how = replace(common, key=f"{key}:how", label=f"{described.label} set", default=BY_HAND)
                found.append(replace(how, options=(BY_HAND, *words)))
        elif described.text:
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else ""
            found.append(replace(common, default=shown))
        else:
            found.append(replace(common, default=value, options=described.choices or words))
    return found


def _words(kind: Any) -> tuple[str, ...]:
    """The names that a type lists, inside a union too."""
    if get_origin(kind) is Literal:
        return tuple(get_args(kind))
    return tuple(word for part in get_args(kind) for word in _words(part))


_CONFIG = HeadConfig()
_TABLES: dict[str, tuple[str, ...]] = {
    "Head": ("head",), "Features": ("input", "augment"), "Loss": ("loss", "auxiliary"),
    "Training": ("optimizer", "sampling", "ema", "crt", "ensemble", ""), "After training": ("posthoc",),
    "Data": ("data",),
}  # fmt: skip
SECTIONS: dict[str, tuple[Switch, ...]] = {
    section: tuple(
        switch
        for name in tables
        for switch in (_switches(getattr(_CONFIG, name), f"{name}.") if name else _switches(_CONFIG, ""))
    )
    for section, tables in _TABLES.items()
}
# What is reached for first, in the order of reading; the page shows the others folded away by section.
MAIN = (
    "head.kind", "loss.name", "posthoc.adjust", "head.margin", "auxiliary.name", "augment.noise",
    "head.scale", "auxiliary.weight", "augment.mixup", "posthoc.temperature", "auxiliary.temperature",
    "optimizer.epochs",
)  # fmt: skip
ALL = {switch.key: switch for section in SECTIONS.values() for switch in section}


def settings(values: Mapping[str, Value]) -> list[str]:
    """What differs from the defaults and is read by the chosen kind of head, as `--set` takes it."""
    kind = str(values.get("head.kind", "linear"))
    words = {key.partition(":")[0] for key, value in values.items() if ":" in key and value != BY_HAND}
    found: list[str] = []
    for key, value in values.items():
        switch = ALL[key]
        if value == switch.default or not switch.applies_to(kind) or key in words:
            continue
        if switch.text == "settings":
            found += [f"{key.partition('.')[0]}.{name}={v}" for name, v in _pairs(str(value), switch)]
        else:
            found.append(f"{key.partition(':')[0]}={_toml(value, switch)}")
    return found


def _toml(value: Value, switch: Switch) -> str:
    parts = [part.strip() for part in str(value).split(",") if part.strip()]
    if switch.text == "numbers":
        if not all(part.isdecimal() for part in parts):
            raise ConfigError(
                f'"{value}" is not a list of whole numbers', where=switch.key, fix="write for example 512"
            )
        return json.dumps([int(part) for part in parts])
    return json.dumps(parts if switch.text == "names" else value)


def _pairs(text: str, switch: Switch) -> list[tuple[str, str]]:
    """name=value, name=value; a value that is no number, truth value or quoted text is a word."""
    found = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not name.replace("_", "").isalnum() or not value:
            raise ConfigError(f'"{part}" is not name=value', where=switch.key, fix="write for example gamma=2")
        try:
            json.loads(value)
        except ValueError:
            value = json.dumps(value)
        found.append((name, value))
    return found


def describe(values: Mapping[str, Value]) -> str:
    """The same for people."""
    kind = str(values.get("head.kind", "linear"))
    changed = [f"{ALL[k].label} {v}" for k, v in values.items() if v != ALL[k].default and ALL[k].applies_to(kind)]
    return ", ".join(changed) or "all switches off"


def to_link(values: Mapping[str, Value]) -> str:
    """What was changed, for the address of the page."""
    return json.dumps({k: v for k, v in values.items() if v != ALL[k].default}, separators=(",", ":"))


def from_link(text: str) -> dict[str, Value] | None:
    """The values of such an address; None where it names what is not there or cannot be."""
    try:
        block = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(block, dict) or not all(k in ALL and _possible(ALL[k], v) for k, v in block.items()):
        return None
    return {k: float(v) if isinstance(ALL[k].default, float) else v for k, v in block.items()}


def _possible(switch: Switch, value: object) -> bool:
    if switch.options:
        return value in switch.options
    if switch.limits is None:
        return isinstance(value, str) and len(value) <= 500
    whole = isinstance(switch.default, int)
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    return number and switch.limits[0] <= value <= switch.limits[1]  # type: ignore[operator]
