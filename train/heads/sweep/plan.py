"""A sweep as it is written down: a baseline and one change at a time, a grid, or Optuna's space; every part checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

from calibrant.config import build, read_toml
from calibrant.errors import ConfigError, did_you_mean
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.config import head_config
from calibrant.train.heads.scores import METRICS

BASELINE = "baseline"
ENCODER = "encoder"  # the setting that says on which of several caches a head is trained


@dataclass(frozen=True)
class VariantTable:
    """[[variant]] `set` is laid over the baseline."""

    name: str
    set: dict[str, Any]


@dataclass(frozen=True)
class OptunaTable:
    """[optuna] `space` maps a dotted key to a list of choices, or to {low, high, log, step}."""

    space: dict[str, Any]
    trials: int = 50
    metric: str = "macro_f1"  # on validation, mean over the seeds
    seed: int = 0


@dataclass(frozen=True)
class SweepFile:
    """A sweep's TOML file: exactly one of [[variant]], [grid] and [optuna]. `features`: a cache, or caches by name."""

    baseline: dict[str, Any] = field(default_factory=dict)
    features: Path | dict[str, str] | None = None
    out: Path | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    metric: str = "macro_f1"  # the one that the table sorts and tests by
    rank_by: Literal["val", "test"] = "val"  # a table sorted by test rows chooses on them
    variant: tuple[VariantTable, ...] = ()
    grid: dict[str, list[Any]] = field(default_factory=dict)
    optuna: OptunaTable | None = None


@dataclass(frozen=True)
class SweepPlan:
    """A sweep with every configuration checked."""

    encoders: dict[str, Path]  # caches by name; the baseline is on the first
    out: Path
    seeds: tuple[int, ...]
    metric: str
    variants: dict[str, dict[str, Any]]  # name: overrides over the baseline, by dotted key; `encoder` among them
    base: dict[str, Any]
    optuna: OptunaTable | None
    rank_by: Literal["val", "test"] = "val"

    def config(self, overrides: Mapping[str, Any], seed: int) -> HeadConfig:
        settings = [f"{key}={_toml(value)}" for key, value in overrides.items() if key != ENCODER]
        return head_config(self.base, [*settings, f"seed={seed}"], where=self.out.name)

    def encoder(self, overrides: Mapping[str, Any]) -> str:
        """The name of the cache that a variant is trained on."""
        return str(overrides.get(ENCODER, next(iter(self.encoders))))


def read_sweep(
    path: Path,
    *,
    features: Path | Mapping[str, Path] | None = None,
    out: Path | None = None,
    rank_by: Literal["val", "test"] | None = None,
) -> SweepPlan:
    """`features`: a cache, or several by name, in the place of the file's own."""
    file = build(SweepFile, read_toml(path), where=path)
    encoders, out = _encoders(features or file.features, path), out or file.out
    if out is None:
        raise ConfigError("no place for the results", where=path, fix='add out = "DIR" or pass --out DIR')
    if sum([bool(file.variant), bool(file.grid), file.optuna is not None]) != 1:
        raise ConfigError("needs exactly one of [[variant]], [grid] and [optuna]", where=path)
    for name in (file.metric, file.optuna.metric if file.optuna else file.metric):
        if name not in METRICS:
            raise ConfigError(f'no metric "{name}"', where=path, fix=f"known are: {', '.join(METRICS)}")
    if not file.seeds or len(set(file.seeds)) != len(file.seeds):
        raise ConfigError("seeds must be different numbers, at least one", where=path)
    variants: dict[str, dict[str, Any]] = {BASELINE: {}}
    for v in file.variant:
        if v.name in variants:
            raise ConfigError(f'two variants are called "{v.name}"', where=path)
        variants[v.name] = flatten(v.set)
    if file.grid:
        grid = flatten(file.grid)
        for values in product(*(v if isinstance(v, list) else [v] for v in grid.values())):
            chosen = dict(zip(grid, values, strict=True))
            variants[", ".join(f"{k}={v}" for k, v in chosen.items())] = chosen
    variants = _on_encoders(variants, encoders, path)
    optuna = file.optuna
    if optuna is not None and len(encoders) > 1:
        optuna = replace(optuna, space={ENCODER: list(encoders), **optuna.space})
    plan = SweepPlan(encoders, out, file.seeds, file.metric, variants, file.baseline, optuna, rank_by or file.rank_by)
    for name, overrides in variants.items():
        try:
            plan.config(overrides, plan.seeds[0])
        except ConfigError as error:
            raise ConfigError(f"{error}", where=f'{path} variant "{name}"') from None
    return plan


def _encoders(given: Path | Mapping[str, Any] | None, where: Path) -> dict[str, Path]:
    """Caches by name; one alone is called by its folder."""
    if not given:
        raise ConfigError("no features", where=where, fix='add features = "DIR" or pass --features DIR')
    if isinstance(given, Path):
        return {given.name: given}
    for name, place in given.items():
        if not isinstance(place, str | Path):
            raise ConfigError(f"expected a folder, got {place!r}", where=f"{where} features.{name}")
    return {name: Path(place) for name, place in given.items()}


def _on_encoders(
    variants: Mapping[str, dict[str, Any]], encoders: Mapping[str, Path], where: Path
) -> dict[str, dict[str, Any]]:
    """Every variant on every encoder, but where it names its own; the first has no name of its own in the baseline."""
    for name, overrides in variants.items():
        if ENCODER in overrides and overrides[ENCODER] not in encoders:
            fix = did_you_mean(str(overrides[ENCODER]), encoders)
            raise ConfigError(f'no features "{overrides[ENCODER]}"', where=f'{where} variant "{name}"', fix=fix)
    if len(encoders) == 1:
        return dict(variants)
    crossed: dict[str, dict[str, Any]] = {}
    for name, overrides in variants.items():
        for encoder in encoders:
            if ENCODER in overrides:
                crossed[name] = overrides
            elif name == BASELINE and not crossed:
                crossed[name] = {ENCODER: encoder}
            else:
                crossed[f"{encoder}: {name}"] = {ENCODER: encoder, **overrides}
    return crossed


def flatten(table: Mapping[str, Any], prefix: str = "", leaves: Sequence[str] = ()) -> dict[str, Any]:
    """Nested tables as dotted keys; a table that has one of `leaves` is a value."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not any(leaf in value for leaf in leaves):
            flat |= flatten(value, f"{name}.", leaves)
        else:
            flat[name] = value
    return flat


def _toml(value: Any) -> str:
    return json.dumps(value)
