"""Ready configurations: a setting (data set) and any of its variants (loss, network), as `fedlas-ls/cub/vit-b16`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from calibrant.errors import ConfigError, did_you_mean

# A recipe is a paper's setting: what it leaves open is not decided by our defaults for fine-tuning.
AS_PUBLISHED = {
    "model": {"pretrained": False, "head_init": "model"},
    "optimizer": {"head_lr_factor": 1.0},
    "schedule": {"warmup_epochs": 0.0},
    "engine": {"freeze_bn": "off", "select": "accuracy", "keep": "best", "frozen_head": "off"},
}


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
        table = laid_over(table, offered[part])
    return laid_over(AS_PUBLISHED, table)


def _read(setting: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("calibrant.train") / "recipes" / f"{setting}.toml").read_text())


def laid_over(table: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with another over it, table by table; another loss brings its own options only."""
    result = dict(table)
    for key, value in over.items():
        inner = result.get(key)
        if key == "loss" and isinstance(inner, Mapping) and "name" in value and inner.get("name") != value["name"]:
            inner = None
        result[key] = laid_over(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
    return result


def moved_schedule(schedule: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """What of a [schedule] table changes with the number of epochs: milestones and warm-up keep their share."""
    before = schedule.get("epochs")
    if before is None or epochs == before:
        return {}
    moved: dict[str, Any] = {}
    for key in ("warmup_epochs", "cooldown_epochs", "decay_epochs"):
        if schedule.get(key):
            least = 1 if key == "decay_epochs" else 0
            moved[key] = max(least, round(schedule[key] * epochs / before))
    if "milestones" in schedule:
        places = (round(m * epochs / before) for m in schedule["milestones"])
        moved["milestones"] = sorted({max(1, place) for place in places if place < epochs})
    return moved
