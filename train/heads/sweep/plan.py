"""A sweep as it is written down: a baseline and one change at a time, a grid, or Optuna's space; every part checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from calibrant.config import build, read_toml
from calibrant.errors import ConfigError
from calibrant.settings.heads import HeadConfig
from calibrant.train.heads.config import head_config
from calibrant.train.heads.scores import METRICS

BASELINE = "baseline"


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
    """A sweep's TOML file: exactly one of [[variant]], [grid] and [optuna]."""

    baseline: dict[str, Any] = field(default_factory=dict)
    features: Path | None = None
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

    features: Path
    out: Path
    seeds: tuple[int, ...]
    metric: str
    variants: dict[str, dict[str, Any]]  # name: overrides over the baseline, by dotted key
    base: dict[str, Any]
    optuna: OptunaTable | None
    rank_by: Literal["val", "test"] = "val"

    def config(self, overrides: Mapping[str, Any], seed: int) -> HeadConfig:
        settings = [f"{key}={_toml(value)}" for key, value in overrides.items()]
        return head_config(self.base, [*settings, f"seed={seed}"], where=self.out.name)


def read_sweep(
    path: Path, *, features: Path | None = None, out: Path | None = None, rank_by: Literal["val", "test"] | None = None
) -> SweepPlan:
    file = build(SweepFile, read_toml(path), where=path)
    features, out = features or file.features, out or file.out
    if features is None:
        raise ConfigError("no features", where=path, fix='add features = "DIR" or pass --features DIR')
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
    plan = SweepPlan(
        features, out, file.seeds, file.metric, variants, file.baseline, file.optuna, rank_by or file.rank_by
    )
    for name, overrides in variants.items():
        try:
            plan.config(overrides, plan.seeds[0])
        except ConfigError as error:
            raise ConfigError(f"{error}", where=f'{path} variant "{name}"') from None
    return plan


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
