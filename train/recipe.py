"""Ready configurations: a setting (data set) and any of its variants (loss, network), as `fedlas-ls/cub/vit-b16`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from calibrant.errors import ConfigError, did_you_mean


def settings() -> tuple[str, ...]:
    """Names of the settings, sorted."""
    folder = resources.files("calibrant.train") / "recipes"
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))


def variants(setting: str) -> tuple[str, ...]:
    return tuple(_read(setting).get("variants", {}))


def recipe_table(name: str) -> dict[str, Any]:
    """The configuration table of a recipe. Parts are joined by `/`: one setting and its variants, in any order; a later
    variant lies over an earlier one.
    """
    parts = [part for part in name.split("/") if part]
    known = settings()
    chosen = [part for part in parts if part in known]
    if len(chosen) != 1:
        what = "names no setting" if not chosen else f"names {len(chosen)} settings"
        guess = did_you_mean(parts[-1], known) if parts else f"known are: {', '.join(known)}"
        raise ConfigError(f'recipe "{name}" {what}', where="--recipe", fix=guess if not chosen else "give one")
    table = _read(chosen[0])
    offered = table.pop("variants", {})
    for part in parts:
        if part in known:
            continue
        if part not in offered:
            raise ConfigError(f'{chosen[0]} has no variant "{part}"', where="--recipe", fix=did_you_mean(part, offered))
        table = _merged(table, offered[part])
    return table


def _read(setting: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("calibrant.train") / "recipes" / f"{setting}.toml").read_text())


def _merged(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(table)
    for key, value in over.items():
        inner = result.get(key)
        if key == "loss" and isinstance(inner, Mapping) and inner.get("name") != value.get("name"):
            inner = None  # another loss has other options
        result[key] = _merged(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
    return result
