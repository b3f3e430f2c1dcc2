"""TOML tables and `--set key=value` into frozen dataclasses; an unknown key is an error that names the nearest one."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from calibrant.errors import ConfigError, did_you_mean

C = TypeVar("C")


def read_toml(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError("no such file", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, IsADirectoryError) as error:
        raise ConfigError(f"not a TOML file ({error})", where=path) from None


def with_overrides(table: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The table with `a.b=value` settings laid over it; a value is TOML, and a bare word is a string."""
    result = _deep_copy(table)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f'"{override}" is not key=value', where="--set")
        *parents, last = key.strip().split(".")
        inner = result
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise ConfigError(f'"{parent}" is a value, not a table', where=f"--set {override}")
        inner[last] = _toml_value(text.strip())
    return result


def build(cls: type[C], table: Mapping[str, Any], *, where: str | Path) -> C:
    """The dataclass that the table describes, every value checked against the field's type."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise ConfigError(f'no key "{key}"', where=where, fix=did_you_mean(name, fields))
        values[name] = _convert(hints[name], value, f"{where} {key}")
    missing = [
        name
        for name, f in fields.items()
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f'key "{missing[0]}" is missing', where=where)
    return cls(**values)


def to_table(config: Any) -> dict[str, Any]:
    """The dataclass as plain JSON values, for `config.json`."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, Path):
            return str(value)
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return value

    table: dict[str, Any] = plain(config)
    return table


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(kind, value, where)
    if origin is Literal:
        if value not in get_args(kind):
            raise ConfigError(f'"{value}" is not possible', where=where, fix=did_you_mean(str(value), get_args(kind)))
        return value
    if origin in (tuple, list):
        return _convert_sequence(kind, value, where)
    if origin in (dict, Mapping) or kind is dict or str(origin).endswith("Mapping'>"):
        if not isinstance(value, Mapping):
            raise ConfigError(f"expected a table, got {value!r}", where=where)
        return dict(value)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"expected a table, got {value!r}", where=where)
        return build(kind, value, where=where)
    if kind is Path and isinstance(value, str | Path):
        return Path(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"expected {getattr(kind, '__name__', kind)}, got {value!r}", where=where)


def _convert_union(kind: Any, value: Any, where: str) -> Any:
    options = get_args(kind)
    if value is None and type(None) in options:
        return None
    failures: list[ConfigError] = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _convert(option, value, where)
        except ConfigError as error:
            failures.append(error)
    words = [str(v) for option in options if get_origin(option) is Literal for v in get_args(option)]
    if isinstance(value, str) and words:
        kinds = [f"a {o.__name__}" for o in options if isinstance(o, type) and o is not type(None)]
        raise ConfigError(f'"{value}" is not possible', where=where, fix=f"use {', '.join([*words, *kinds])}")
    raise failures[0] if failures else ConfigError(f"got {value!r}", where=where)


def _convert_sequence(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"expected a list, got {value!r}", where=where)
    inner = get_args(kind)
    if get_origin(kind) is list:
        return [_convert(inner[0], v, where) for v in value]
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_convert(inner[0], v, where) for v in value)
    if len(inner) != len(value):
        raise ConfigError(f"expected {len(inner)} values, got {len(value)}", where=where)
    return tuple(_convert(k, v, where) for k, v in zip(inner, value, strict=True))


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _deep_copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _deep_copy(v) if isinstance(v, Mapping) else v for k, v in table.items()}
